package doctor

import (
	"fmt"
	"io"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"
)

// Metrics is one scrape.
type Metrics struct {
	families map[string]*dto.MetricFamily
}

// ParseMetrics reads Prometheus' text format.
func ParseMetrics(r io.Reader) (*Metrics, error) {
	parser := expfmt.NewTextParser(names.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &Metrics{families: families}, nil
}

// value of a counter, gauge or untyped sample.
func value(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	default:
		return m.GetUntyped().GetValue()
	}
}

// Has tells whether the metric has any series.
func (m *Metrics) Has(name string) bool {
	return m != nil && len(m.families[name].GetMetric()) > 0
}

// Sum adds the series of a metric that have the label values, given in pairs; 0 if there are none.
func (m *Metrics) Sum(name string, labels ...string) (sum float64) {
	m.each(name, func(s *dto.Metric) {
		if hasLabels(s, labels) {
			sum += value(s)
		}
	})
	return sum
}

// Max is the largest of the series of a metric, 0 if there are none.
func (m *Metrics) Max(name string) (most float64) {
	m.each(name, func(s *dto.Metric) { most = max(most, value(s)) })
	return most
}

// By sums a metric by the values of one label; values whose sum is 0 are left out.
func (m *Metrics) By(name, label string) map[string]float64 {
	sums := map[string]float64{}
	m.each(name, func(s *dto.Metric) {
		if v := value(s); v != 0 {
			sums[labelOf(s, label)] += v
		}
	})
	return sums
}

// Label is the value of a label in the first series of a metric.
func (m *Metrics) Label(name, label string) string {
	found := ""
	m.each(name, func(s *dto.Metric) {
		if found == "" {
			found = labelOf(s, label)
		}
	})
	return found
}

// leastObserved is how many observations a quantile needs: the 99th percentile of a
// handful is its largest, and that was a cold start.
const leastObserved = 100

// Quantile is an upper bound of a quantile of a histogram, +Inf if it lies above the
// last bucket, and NaN with fewer than leastObserved observations.
func (m *Metrics) Quantile(name string, q float64) float64 {
	bounds := map[float64]uint64{}
	total := uint64(0)
	m.each(name, func(s *dto.Metric) {
		h := s.GetHistogram()
		total += h.GetSampleCount()
		for _, b := range h.GetBucket() {
			bounds[b.GetUpperBound()] += b.GetCumulativeCount()
		}
	})
	if total < leastObserved {
		return math.NaN()
	}
	sorted := make([]float64, 0, len(bounds))
	for b := range bounds {
		sorted = append(sorted, b)
	}
	slices.Sort(sorted)
	for _, b := range sorted {
		if float64(bounds[b]) >= q*float64(total) {
			return b
		}
	}
	return math.Inf(1)
}

func (m *Metrics) each(name string, f func(*dto.Metric)) {
	if m == nil {
		return
	}
	for _, s := range m.families[name].GetMetric() {
		f(s)
	}
}

func labelOf(s *dto.Metric, name string) string {
	for _, l := range s.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func hasLabels(s *dto.Metric, pairs []string) bool {
	for i := 0; i+1 < len(pairs); i += 2 {
		if labelOf(s, pairs[i]) != pairs[i+1] {
			return false
		}
	}
	return true
}
