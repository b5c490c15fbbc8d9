package lookupsvc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// deadline is the tightest of the caller's, the policy's and the server's.
func (s *Service) deadline(ctx context.Context, start time.Time, p *ranking.Policy) time.Time {
	limit := s.timeout
	if p.LookupTimeout > 0 && p.LookupTimeout < limit {
		limit = p.LookupTimeout
	}
	deadline := start.Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	return deadline
}

// spent tells whether the time is over or the caller has gone.
func spent(ctx context.Context, deadline time.Time) bool {
	return ctx.Err() != nil || !time.Now().Before(deadline)
}

// call is one question to the index, answered by a goroutine of its own: a
// handler cannot return while it waits inside a function that does not.
type call struct {
	done  chan error // takes one result without a reader
	state atomic.Int32
}

// The states of a call. Whoever moves it out of callOpen first has the say: the
// goroutine with its answer, or the handler whose budget is spent.
const (
	callOpen int32 = iota
	callAnswered
	callLeft
)

// maxLeft bounds the calls that lookups have given up on and that still run. An
// index that honours its context keeps it near zero; one that hangs must not
// take the pod's memory with it.
const maxLeft = 10_000

// asked is how a question to the index ended.
type asked uint8

const (
	askedAnswered asked = iota
	askedFailed         // an error: nothing is known
	askedTooLong        // the budget ran out
	askedLeft           // the budget ran out and the index still reads the lookup and its request
)

// ask lets the index fill l.ev until the deadline, and not a moment longer.
func (s *Service) ask(caller context.Context, l *lookup, deadline time.Time) asked {
	if s.left.Load() >= maxLeft {
		s.metrics.lookupErrors.WithLabelValues(errStuck).Inc()
		s.sampler.error("index hangs: lookups are answered without it", "abandoned_calls", int(s.left.Load()))
		return askedFailed
	}
	ctx, cancel := context.WithDeadline(caller, deadline)
	defer cancel()
	l.call.state.Store(callOpen)
	go s.match(ctx, l)
	select {
	case err := <-l.call.done:
		return s.judge(caller, err, deadline)
	case <-ctx.Done():
	}
	if l.call.state.CompareAndSwap(callOpen, callLeft) {
		s.left.Add(1)
		return askedLeft
	}
	return s.judge(caller, <-l.call.done, deadline) // it had its answer at the same moment
}

// match is the goroutine of one call.
func (s *Service) match(ctx context.Context, l *lookup) {
	err := s.matchSafely(ctx, l)
	if l.call.state.CompareAndSwap(callOpen, callAnswered) {
		l.call.done <- err
		return
	}
	s.left.Add(-1)
}

func (s *Service) matchSafely(ctx context.Context, l *lookup) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked("Index.Match", v)
			err = errIndexPanicked
		}
	}()
	return s.index.Match(ctx, &l.in.Query, &l.ev)
}

var errIndexPanicked = errors.New("index panicked")

// judge tells a failure of the index from the end of the budget: an index that
// honours its context fails when the budget ends.
func (s *Service) judge(caller context.Context, err error, deadline time.Time) asked {
	switch {
	case spent(caller, deadline):
		return askedTooLong
	case err == nil:
		return askedAnswered
	case errors.Is(err, errIndexPanicked):
		s.metrics.lookupErrors.WithLabelValues(errPanic).Inc()
	default:
		s.metrics.lookupErrors.WithLabelValues(errIndex).Inc()
		s.sampler.error("index failed: lookup answered without it", "error", err)
	}
	return askedFailed
}
