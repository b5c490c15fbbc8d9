package lookupsvc

import (
	"context"

	"inferencecache.io/lookuptier/ranking"
)

// Index is where holds and stats live. Its methods are called by many goroutines
// at once; they honour ctx, and none keeps an argument after it has returned.
type Index interface {
	// Match fills ev with what is known about q, as one consistent view. A view
	// from memory while the index cannot be asked is not an error (ev.Degraded tells),
	// nor is one that does not cover q (ev.Partial); any error means that nothing is known.
	Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error
	// Report takes all of rs in their order, or returns an error and the producer keeps
	// them; some may have been taken.
	Report(ctx context.Context, rs ...*ranking.Report) error
	// Publish takes e, or returns an error and the producer keeps it.
	Publish(ctx context.Context, e *ranking.Event) error
	// State tells what is known about s; a scope that was never heard of is empty.
	State(ctx context.Context, s ranking.Scope) (ranking.State, error)
}
