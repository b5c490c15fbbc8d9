package main

import (
	"context"
	"errors"
	"sync/atomic"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
)

// errNotAgreed answers for an index whose layout nobody has checked yet.
var errNotAgreed = errors.New("this pod has not reached Redis since it started")

// gate keeps calls from the index until the pod has agreed with Redis on the
// layout: a pod with another number of shards must not touch what is there.
type gate struct {
	index   lookupsvc.Index
	changes lookupsvc.Changes
	open    atomic.Bool
}

func (g *gate) Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	if !g.open.Load() {
		return errNotAgreed
	}
	return g.index.Match(ctx, q, ev)
}

func (g *gate) Report(ctx context.Context, rs ...*ranking.Report) error {
	if !g.open.Load() {
		return errNotAgreed
	}
	return g.index.Report(ctx, rs...)
}

func (g *gate) Publish(ctx context.Context, e *ranking.Event) error {
	if !g.open.Load() {
		return errNotAgreed
	}
	return g.index.Publish(ctx, e)
}

func (g *gate) State(ctx context.Context, s ranking.Scope) (ranking.State, error) {
	if !g.open.Load() {
		return ranking.State{}, errNotAgreed
	}
	return g.index.State(ctx, s)
}

func (g *gate) Follow(ctx context.Context, f *ranking.ChangeFilter, started func(), take func(*ranking.Change) error) error {
	if !g.open.Load() {
		return errNotAgreed
	}
	return g.changes.Follow(ctx, f, started, take)
}
