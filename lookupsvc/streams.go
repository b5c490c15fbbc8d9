package lookupsvc

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"inferencecache.io/lookuptier/ranking"
)

// Changes is where StreamCacheEvents hears of what changes in the index.
type Changes interface {
	// Follow hands every change that f lets pass to take, one after another, until ctx
	// ends, take returns an error, or nothing more can be told. What changes after the
	// call of started is not missed. ranking.ErrChangesMissed says that some changes
	// will never be told.
	Follow(ctx context.Context, f *ranking.ChangeFilter, started func(), take func(*ranking.Change) error) error
}

const (
	// MaxStreams is how many StreamCacheEvents and StreamMetrics calls a pod answers
	// at a time: each costs it reads of Redis, or of its metrics, for as long as it lasts.
	MaxStreams = 64
	// MetricsEvery is how often StreamMetrics sends.
	MetricsEvery = 5 * time.Second
	// slowAfter is how long a consumer may let its stream be full.
	slowAfter = 5 * time.Second
)

// Values of the reason label of streams_cut_total.
const (
	cutSlow   = "slow"   // the consumer did not read
	cutMissed = "missed" // changes were missed
	cutIndex  = "index"  // the index could not be read
	cutFull   = "full"   // MaxStreams are open
)

var cutReasons = []string{cutSlow, cutMissed, cutIndex, cutFull}

// streams are the endless calls.
type streams struct {
	changes  Changes
	gatherer prometheus.Gatherer
	every    time.Duration // of StreamMetrics
	slow     time.Duration
	open     chan struct{} // holds one for each open stream
	cuts     *prometheus.CounterVec
}

func newStreams(o *Options, r *registrar) *streams {
	s := &streams{changes: o.Changes, gatherer: o.Gatherer, every: MetricsEvery, slow: slowAfter,
		open: make(chan struct{}, MaxStreams),
		cuts: r.counters("streams_cut_total",
			"StreamCacheEvents and StreamMetrics calls that the pod refused or ended, by reason.", "reason")}
	for _, reason := range cutReasons {
		s.cuts.WithLabelValues(reason)
	}
	r.gauge("streams_open", "StreamCacheEvents and StreamMetrics calls under way.", func() float64 { return float64(len(s.open)) })
	return s
}

// enter takes one of the places; leave gives it back.
func (s *streams) enter() (leave func(), err error) {
	select {
	case s.open <- struct{}{}:
		return func() { <-s.open }, nil
	default:
		s.cuts.WithLabelValues(cutFull).Inc()
		return nil, status.Errorf(codes.ResourceExhausted, "%d streams are open, as many as this pod takes: ask another pod", MaxStreams)
	}
}

var errSlow = errors.New("the consumer is slow")

// cut is the one place where the end of a Follow becomes a status.
func (s *streams) cut(err error) error {
	reason, code, text := cutIndex, codes.Unavailable, "the index cannot be followed, try again: "+err.Error()
	switch {
	case errors.Is(err, errSlow):
		reason, code = cutSlow, codes.ResourceExhausted
		text = "the stream was not read for " + s.slow.String() + ": read faster or narrow the filter, read the state anew, and follow again"
	case errors.Is(err, ranking.ErrChangesMissed):
		reason, code = cutMissed, codes.DataLoss
		text = err.Error() + ": read the state anew, and follow again"
	}
	s.cuts.WithLabelValues(reason).Inc()
	return status.Error(code, text)
}
