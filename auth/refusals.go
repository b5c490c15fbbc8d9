package auth

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// refusals are those of one reason. Each reason has its own share of the log, so that
// one caller's flood does not hide what happens to another.
type refusals struct {
	count prometheus.Counter

	mu      sync.Mutex
	limit   *rate.Limiter
	omitted int
}

func newRefusals(count prometheus.Counter) *refusals {
	return &refusals{count: count, limit: rate.NewLimiter(rate.Every(time.Second), 1)}
}

// add counts one, and tells whether it may be logged and how many were left out of the
// log since the last that was.
func (r *refusals) add() (omitted int, write bool) {
	r.count.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.limit.Allow() {
		r.omitted++
		return 0, false
	}
	omitted, r.omitted = r.omitted, 0
	return omitted, true
}
