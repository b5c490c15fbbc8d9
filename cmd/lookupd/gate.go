package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
)

// errNotAgreed answers for an index whose layout nobody has checked yet.
var errNotAgreed = errors.New("this pod has not reached Redis since it started")

// gate keeps calls from the index unless the pod agrees with Redis on the layout: a
// pod with another number of shards must not touch what is there, nor believe it.
// It opens when they first agree, and shuts while Redis says that they do not; a
// Redis that says nothing changes nothing. The zero value but for its fields is shut.
type gate struct {
	index   lookupsvc.Index
	changes lookupsvc.Changes

	passage atomic.Pointer[passage] // nil = never opened
	mu      sync.Mutex              // serialises open and shut
}

// passage is the gate between two changes.
type passage struct {
	why  error         // why nothing passes; nil = open
	shut chan struct{} // closed when an open one ends
}

// open lets calls pass; true if it is the first time.
func (g *gate) open() (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.passage.Load()
	if before == nil || before.why != nil {
		g.passage.Store(&passage{shut: make(chan struct{})})
	}
	return before == nil
}

// shut lets nothing pass, and ends the streams that have; a gate that never opened
// stays as it is.
func (g *gate) shut(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.passage.Load()
	if before == nil {
		return
	}
	g.passage.Store(&passage{why: why})
	if before.why == nil {
		close(before.shut)
	}
}

// opened tells whether it ever was.
func (g *gate) opened() bool { return g.passage.Load() != nil }

// closed is why a call cannot pass; nil = it can.
func (g *gate) closed() error {
	p := g.passage.Load()
	if p == nil {
		return errNotAgreed
	}
	return p.why
}

func (g *gate) Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	if err := g.closed(); err != nil {
		return err
	}
	return g.index.Match(ctx, q, ev)
}

func (g *gate) Report(ctx context.Context, rs ...*ranking.Report) error {
	if err := g.closed(); err != nil {
		return err
	}
	return g.index.Report(ctx, rs...)
}

func (g *gate) Publish(ctx context.Context, e *ranking.Event) error {
	if err := g.closed(); err != nil {
		return err
	}
	return g.index.Publish(ctx, e)
}

func (g *gate) State(ctx context.Context, s ranking.Scope) (ranking.State, error) {
	if err := g.closed(); err != nil {
		return ranking.State{}, err
	}
	return g.index.State(ctx, s)
}

func (g *gate) Follow(ctx context.Context, f *ranking.ChangeFilter, started func(), take func(*ranking.Change) error) error {
	p := g.passage.Load()
	switch {
	case p == nil:
		return errNotAgreed
	case p.why != nil:
		return p.why
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-p.shut:
			cancel()
		case <-within.Done():
		}
	})
	err := g.changes.Follow(within, f, started, take)
	cancel()
	watch.Wait()
	if why := g.closed(); why != nil && ctx.Err() == nil {
		return why
	}
	return err
}
