package lookupsvc

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferencecache.io/lookuptier/ranking"
)

const (
	// DefaultModels is how many models have series of their own.
	DefaultModels = 1000
	// OtherModel is the model label of all models beyond them.
	OtherModel = "other"
)

// modelSeries has the series of LookupRoute by model. The label's values come
// from the network, so their number is bounded: the first models to be asked for
// have series of their own, all others share one.
type modelSeries struct {
	calls   *prometheus.CounterVec
	latency *prometheus.HistogramVec
	other   *oneModel
	limit   int

	// known is read on every lookup and copied on the rare write.
	known atomic.Pointer[map[string]*oneModel]
	mu    sync.Mutex // held by writers of known
}

// oneModel has the series of one model label.
type oneModel struct {
	latency prometheus.Observer
	// calls by reason code; each code tells by itself whether there is a hint.
	calls map[ranking.Reason]prometheus.Counter
}

func newModelSeries(r *registrar, limit int) *modelSeries {
	if limit <= 0 {
		limit = DefaultModels
	}
	m := &modelSeries{
		limit: limit,
		calls: r.counters("lookup_route_calls_total",
			"LookupRoute calls by model, reason code and whether the reply names a replica.",
			"model", "reason_code", "hint_used"),
		latency: r.histograms("lookup_route_latency_seconds",
			"Time that the LookupRoute handler took.",
			[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1}, "model"),
	}
	m.other = m.series(OtherModel)
	m.known.Store(&map[string]*oneModel{})
	return m
}

func (m *modelSeries) series(label string) *oneModel {
	one := &oneModel{latency: m.latency.WithLabelValues(label), calls: make(map[ranking.Reason]prometheus.Counter)}
	for _, reason := range ranking.Reasons() {
		one.calls[reason] = m.calls.WithLabelValues(label, string(reason), strconv.FormatBool(namesReplica(reason)))
	}
	return one
}

// namesReplica tells whether replies with this code carry scores.
func namesReplica(r ranking.Reason) bool {
	return r == ranking.ReasonPrefixMatch || r == ranking.ReasonTenantHot || r == ranking.ReasonAffinityHint
}

// of finds or admits a model.
func (m *modelSeries) of(model string) *oneModel {
	known := *m.known.Load()
	if one := known[model]; one != nil {
		return one
	}
	if len(known) >= m.limit || len(model) > MaxNameBytes {
		return m.other
	}
	return m.admit(model)
}

func (m *modelSeries) admit(model string) *oneModel {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := *m.known.Load()
	if one := known[model]; one != nil {
		return one
	}
	if len(known) >= m.limit {
		return m.other
	}
	label := strings.ToValidUTF8(strings.Clone(model), "\uFFFD")
	one := m.series(label)
	grown := make(map[string]*oneModel, len(known)+1)
	maps.Copy(grown, known)
	grown[strings.Clone(model)] = one
	m.known.Store(&grown)
	return one
}

// lookupDone counts one LookupRoute call; trace names the trace that shows it, "" = none.
func (m *metrics) lookupDone(model string, reason ranking.Reason, hint bool, took time.Duration, trace string) {
	one := m.models.of(model)
	if exemplars, ok := one.latency.(prometheus.ExemplarObserver); ok && trace != "" {
		exemplars.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
	} else {
		one.latency.Observe(took.Seconds())
	}
	if c := one.calls[reason]; c != nil && hint == namesReplica(reason) {
		c.Inc()
		return
	}
	// A code that this package does not know, or one without the scores that it stands for.
	label := OtherModel
	if one != m.models.other {
		label = strings.ToValidUTF8(model, "\uFFFD")
	}
	m.models.calls.WithLabelValues(label, string(reason), strconv.FormatBool(hint)).Inc()
}
