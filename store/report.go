package store

import (
	"context"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
)

// Report writes all of rs in one round trip and in order, or returns an error: then
// some of it may have been written, and all of it can be sent again.
func (s *Store) Report(ctx context.Context, rs ...*ranking.Report) error {
	batches := make([]*Batch, len(rs))
	var calls []*scripts.Call
	for i, r := range rs {
		batches[i] = s.batchOf(r)
		calls = append(calls, batches[i].calls...)
	}
	if len(calls) == 0 {
		return nil
	}
	failed := scripts.Run(ctx, s.rdb, calls...)
	var first error
	for _, b := range batches {
		// Each batch finds what failed in its own calls.
		if _, err := b.sent(ctx, nil); first == nil {
			first = err
		}
	}
	if first == nil {
		first = failed
	}
	return first
}

func (s *Store) batchOf(r *ranking.Report) *Batch {
	b := s.Batch(r.Scope, r.Replica)
	if r.Scheme != "" {
		for adapter, entries := range byAdapter(r.Entries) {
			b.Report(ranking.Space{Scheme: r.Scheme, Adapter: adapter}, r.SeenMS, entries)
		}
	}
	if r.Stats != nil {
		b.Stats(r.Stats, r.SeenMS)
	}
	return b
}

// byAdapter groups entries, keeping their order within each adapter. Almost every
// report has one adapter, and then nothing is copied.
func byAdapter(entries []ranking.Entry) map[string][]ranking.Entry {
	if len(entries) == 0 {
		return nil
	}
	first := entries[0].Adapter
	alone := true
	for i := range entries {
		alone = alone && entries[i].Adapter == first
	}
	if alone {
		return map[string][]ranking.Entry{first: entries}
	}
	groups := map[string][]ranking.Entry{}
	for _, e := range entries {
		groups[e.Adapter] = append(groups[e.Adapter], e)
	}
	return groups
}

// RenewLease lets the replica serve until d from now, by Redis' clock. It gives an
// unknown replica a number. A replica that once had a lease serves nothing when it
// has run out, until it is renewed, or until Retire and a report without a lease.
func (s *Store) RenewLease(ctx context.Context, scope ranking.Scope, replica string, d time.Duration) (Receipt, error) {
	b := s.Batch(scope, replica)
	b.Lease(d)
	return b.Send(ctx)
}
