package writer

import (
	"context"
	"encoding/binary"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/store"
)

// write makes one round trip with what is due. more tells whether it should be called again.
func (w *Writer) write(ctx context.Context, now time.Time) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()
	w.mu.Lock()
	live, name, stats, fresh := w.live, w.name, w.stats, w.fresh
	w.mu.Unlock()
	if !w.agreed {
		if err := w.store.Ready(ctx); err != nil {
			return true, err
		}
		w.agreed = true
		w.counts.Agreed.Store(1)
	}
	if name != w.replica {
		return true, w.rename(ctx, name)
	}
	limit := w.opts.BatchSize
	if !live {
		limit = 0
	}
	// After failures the lease is the probe: a batch that meets a dead connection is neither
	// written nor certain not to be.
	collected := (w.awaySince.IsZero() || !live || w.opts.Lease < 0) && w.mirror.Collect(&w.delta, limit)
	w.behind = collected && len(w.delta.Changes) == limit
	if collected && w.delta.Retire {
		return true, w.retire(ctx, now)
	}
	b := w.store.Batch(w.opts.Scope, w.replica)
	leasing := live && w.opts.Lease > 0 && (w.number == 0 && collected || !now.Before(w.leased.Add(w.opts.Lease/3)) || !w.awaySince.IsZero())
	if leasing {
		// First, so that a replica without a number never stands there without a lease.
		b.Lease(w.opts.Lease)
	}
	var sent *ranking.Stats
	if live && stats != nil && fresh {
		b.Stats(stats, 0)
		sent = stats
	}
	w.add(b)
	if b.Calls() == 0 {
		return false, nil
	}
	w.wrote = now
	receipt, err := b.Send(ctx)
	if err != nil {
		w.unanswered += int64(b.Calls())
		w.lostReply = time.Now()
		if collected {
			w.mirror.Settle(&w.delta, false, now)
		}
		return true, err
	}
	w.counts.Writes.Add(1)
	if leasing {
		w.leased = now
		w.counts.Leases.Add(1)
	}
	w.mu.Lock()
	if w.stats == sent {
		w.fresh = false
	}
	w.mu.Unlock()
	w.compare(receipt, int64(b.Calls()))
	if collected {
		w.count(&w.delta)
		w.mirror.Settle(&w.delta, true, now)
	}
	w.back(now)
	return true, nil
}

// add fills a batch with the collected changes, adapter by adapter. Each fingerprint
// stands in a Delta once, so their order does not matter.
func (w *Writer) add(b *store.Batch) {
	type pair struct {
		stores  []ranking.Entry
		removes [][]byte
	}
	spaces := map[string]*pair{}
	buf := make([]byte, 0, ranking.FingerprintBytes*len(w.delta.Changes))
	for _, c := range w.delta.Changes {
		p := spaces[c.Adapter]
		if p == nil {
			p = &pair{}
			spaces[c.Adapter] = p
		}
		buf = binary.BigEndian.AppendUint64(buf, c.FP)
		hash := buf[len(buf)-ranking.FingerprintBytes:]
		if c.Tier == ranking.TierNone {
			p.removes = append(p.removes, hash)
		} else {
			p.stores = append(p.stores, ranking.Entry{Hash: hash, Tokens: c.Tokens, Tier: c.Tier})
		}
	}
	for adapter, p := range spaces {
		sp := ranking.Space{Scheme: w.opts.Scheme, Adapter: adapter}
		b.Report(sp, 0, p.stores)
		b.Evict(sp, p.removes)
	}
}

func (w *Writer) count(d *mirror.Delta) {
	removed := int64(0)
	for i := range d.Changes {
		if d.Changes[i].Tier == ranking.TierNone {
			removed++
		}
	}
	w.counts.Removed.Add(removed)
	w.counts.Stored.Add(int64(len(d.Changes)) - removed)
}

// retire writes a Delta that asks for it.
func (w *Writer) retire(ctx context.Context, now time.Time) error {
	w.wrote = now
	err := w.store.Retire(ctx, w.opts.Scope, w.replica)
	w.mirror.Settle(&w.delta, err == nil, now)
	if err == nil {
		w.counts.Retired.Add(1)
		w.anew()
		w.back(now)
	}
	return err
}

func (w *Writer) rename(ctx context.Context, name string) error {
	if err := w.store.Retire(ctx, w.opts.Scope, w.replica); err != nil {
		return err
	}
	w.log.Info("the replica gets another name", "name", name)
	w.replica = name
	w.log = w.opts.Logger.With("replica", name)
	w.mirror.Forget()
	w.anew()
	return nil
}

// anew: the replica has no number; the next write gives it one.
func (w *Writer) anew() {
	w.number, w.writes, w.unanswered = 0, 0, 0
	w.counts.Number.Store(0)
	w.leased = time.Time{}
	w.mu.Lock()
	w.fresh = w.stats != nil
	w.mu.Unlock()
}

// compare tells from a receipt whether Redis still has what it was told: the number is the
// one it gave, and the count of writes did not fall behind. What a failover or an old dump
// takes away it takes from the count as well.
func (w *Writer) compare(r store.Receipt, calls int64) {
	before := r.Writes - calls
	if time.Since(w.lostReply) > lateCall {
		defer func() { w.unanswered = 0 }()
	}
	switch {
	case w.number == 0:
	case r.Number != w.number || before < w.writes:
		w.counts.Lost.Add(1)
		w.log.Warn("Redis lost what it was told: writing everything again",
			"number", r.Number, "wasNumber", w.number, "writes", before, "wereWrites", w.writes)
		w.agreed = false // the layout may be gone too
		// An old dump has blocks that were removed since: nobody can name them any more.
		w.mirror.RetireFirst()
	case before > w.writes+w.unanswered:
		w.counts.Foreign.Add(before - w.writes - w.unanswered)
		if !w.warned {
			w.warned = true
			w.log.Warn("somebody else writes for this replica: give each engine a replica id of its own", "writes", before-w.writes-w.unanswered)
		}
	}
	if w.number == r.Number {
		w.unanswered = max(0, w.unanswered-max(0, before-w.writes))
	}
	w.number, w.writes = r.Number, r.Writes
	w.counts.Number.Store(int64(r.Number))
}
