package replay

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Percentiles sum up how long calls of one kind took, in microseconds.
type Percentiles struct {
	Calls int     `json:"calls"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	Max   float64 `json:"max_us"`
}

// latencies collects durations; the zero value is ready.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	l.all = append(l.all, d)
	l.mu.Unlock()
}

func (l *latencies) percentiles() Percentiles {
	l.mu.Lock()
	sorted := slices.Clone(l.all)
	l.mu.Unlock()
	slices.Sort(sorted)
	return Percentiles{
		Calls: len(sorted),
		P50:   microseconds(rank(sorted, 0.50)),
		P90:   microseconds(rank(sorted, 0.90)),
		P99:   microseconds(rank(sorted, 0.99)),
		Max:   microseconds(rank(sorted, 1)),
	}
}

// rank is the smallest value that at least the share q of all values do not exceed;
// 0 for no values.
func rank(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
