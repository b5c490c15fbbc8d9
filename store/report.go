package store

import (
	"context"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// Report writes all of r in one round trip, or returns an error: then some of it may
// have been written, and all of it can be sent again.
func (s *Store) Report(ctx context.Context, r *ranking.Report) error {
	b := s.Batch(r.Scope, r.Replica)
	if r.Scheme != "" {
		for adapter, entries := range byAdapter(r.Entries) {
			b.Report(ranking.Space{Scheme: r.Scheme, Adapter: adapter}, r.SeenMS, entries)
		}
	}
	if r.Stats != nil {
		b.Stats(r.Stats, r.SeenMS)
	}
	_, err := b.Send(ctx)
	return err
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
