// Package scrape reads an engine's own metrics and makes the load and cache health of a
// replica of them.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"inferencecache.io/lookuptier/ranking"
)

// ErrMissing is wrapped when a scrape worked and found none of the names that it knows,
// or none for the wanted model: there is nothing to report, which is not the same as zeros.
var ErrMissing = errors.New("no known engine metrics")

// maxBody bounds a scrape. Engines export some hundred kilobytes.
const maxBody = 16 << 20

// Options of a Scraper. URL is required.
type Options struct {
	URL string
	// Model picks series by their label model_name; "" = those of the only model there is.
	Model string
	// Served is tried before the only model there is, if Model is empty: the name the replica reports under.
	Served string
	// CacheBytes is the size of the engine's cache; 0 = unknown, memory is not reported.
	CacheBytes int64
	// Ceiling is the number of requests, running and waiting, that counts as saturated; 0 = DefaultCeiling.
	Ceiling float64
	// WaitingWeight is how many running requests a waiting one counts for; 0 = 1. Negative = nothing.
	WaitingWeight float64
	// CacheWeight is the pressure of a cache in which every block is in use; 0 = 1. Negative = nothing.
	CacheWeight float64
	// Timeout bounds one scrape; 0 = 2 s.
	Timeout time.Duration
	// Version becomes Stats.ClientVersion.
	Version string
}

// DefaultCeiling is how many sequences engines run at once by default.
const DefaultCeiling = 256

// Scraper reads one engine. It keeps the counters of the last scrape, for the
// hit rate of the time between two. It is not safe for concurrent use.
type Scraper struct {
	opts   Options
	client *http.Client
	last   map[int]window // by rank
}

// window is where the counters stood, and the last hit rate that was known.
type window struct {
	hits, queries float64
	known         bool
	rate          float32
}

// New checks the options.
func New(o Options) (*Scraper, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("engine metrics URL %q: want http://host:port/metrics", o.URL)
	}
	if o.Ceiling == 0 {
		o.Ceiling = DefaultCeiling
	}
	if o.Ceiling < 0 || math.IsNaN(o.Ceiling) {
		return nil, fmt.Errorf("a concurrency ceiling of %v: want more than 0", o.Ceiling)
	}
	weight := func(w *float64) {
		if *w == 0 {
			*w = 1
		}
		*w = max(*w, 0)
	}
	weight(&o.WaitingWeight)
	weight(&o.CacheWeight)
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	return &Scraper{opts: o, client: &http.Client{Timeout: o.Timeout}, last: map[int]window{}}, nil
}

// Close lets go of idle connections.
func (s *Scraper) Close() { s.client.CloseIdleConnections() }

// Scrape asks the engine once. It returns the stats of each data-parallel rank that the
// engine tells apart, by its number; an engine that tells none apart is rank 0.
// On an error there is nothing to report.
func (s *Scraper) Scrape(ctx context.Context) (map[int]*ranking.Stats, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.opts.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: status %s", s.opts.URL, resp.Status)
	}
	samples, err := read(io.LimitReader(resp.Body, maxBody), resp.Header)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", s.opts.URL, err)
	}
	return s.stats(samples)
}

// sample is one series that matters.
type sample struct {
	as    meaning
	model string
	rank  string
	value float64
}

// read keeps the series with known names. OpenMetrics differs from the text format, for what
// matters here, in comments and in timestamps: its end marker and exemplars are cut off.
func read(r io.Reader, h http.Header) ([]sample, error) {
	text := r
	if expfmt.ResponseFormat(h).FormatType() == expfmt.TypeOpenMetrics {
		text = plain(r)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, err
	}
	var out []sample
	for name, family := range families {
		as, ok := names[name]
		if !ok {
			continue
		}
		for _, m := range family.GetMetric() {
			v := m.GetUntyped().GetValue() + m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				continue
			}
			one := sample{as: as, value: v}
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "model_name":
					one.model = l.GetValue()
				case "engine", "dp_rank":
					one.rank = l.GetValue()
				}
			}
			out = append(out, one)
		}
	}
	return out, nil
}

func (s *Scraper) stats(samples []sample) (map[int]*ranking.Stats, error) {
	if len(samples) == 0 {
		return nil, fmt.Errorf("scrape %s: %w: found neither vLLM's nor SGLang's", s.opts.URL, ErrMissing)
	}
	samples, err := s.ofModel(samples)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", s.opts.URL, err)
	}
	ranks := map[int]*reading{}
	for _, one := range samples {
		n, err := strconv.Atoi(one.rank)
		if err != nil || n < 0 {
			n = 0
		}
		if ranks[n] == nil {
			ranks[n] = &reading{}
		}
		ranks[n].take(one)
	}
	out := map[int]*ranking.Stats{}
	for n, r := range ranks {
		if st := s.judge(n, r); st != nil {
			out[n] = st
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("scrape %s: %w: neither load nor cache use", s.opts.URL, ErrMissing)
	}
	return out, nil
}

// ofModel keeps the series of one model.
func (s *Scraper) ofModel(samples []sample) ([]sample, error) {
	found := map[string]bool{}
	for _, one := range samples {
		found[one.model] = true
	}
	want := s.opts.Model
	switch {
	case want != "":
	case found[s.opts.Served]:
		want = s.opts.Served
	case len(found) == 1:
		for only := range found {
			want = only
		}
	default:
		return nil, fmt.Errorf("%w: the engine has %d models: name one with --engine-model-name", ErrMissing, len(found))
	}
	kept := samples[:0]
	for _, one := range samples {
		if one.model == want {
			kept = append(kept, one)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("%w for model %q", ErrMissing, want)
	}
	return kept, nil
}
