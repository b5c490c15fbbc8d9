package store

import (
	"context"
	"fmt"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
)

// Receipt tells a writer what its replica's record says after a write. A number or a
// count of writes that is not what the writer expects means that Redis lost what it
// had been told: it is empty, restored, or failed over.
type Receipt struct {
	// NowMS is Redis' time, Unix ms.
	NowMS int64
	// Number is the replica's present generation; 0 = Redis does not know the replica.
	Number uint32
	// Writes counts the script calls that named the replica since it got its number.
	Writes int64
}

// Batch is a sequence of changes of one replica that Send makes in one round trip
// and in order. It is not safe for concurrent use.
type Batch struct {
	s       *Store
	p       Partition
	keys    scripts.Partition
	k       Keys
	replica string
	calls   []*scripts.Call
	read    []func(*scripts.Call) (scripts.Written, error)
	filled  bool // a report found the partition empty
	emptied bool // the last eviction left it empty
}

// Batch starts an empty batch.
func (s *Store) Batch(scope ranking.Scope, replica string) *Batch {
	p := Partition{Scope: scope, Shard: ShardOf(replica, s.shards)}
	k := p.Keys()
	return &Batch{s: s, p: p, k: k, keys: k.script(), replica: replica}
}

// Calls is how many script calls the batch has become: by so many Receipt.Writes will grow.
func (b *Batch) Calls() int { return len(b.calls) }

// Report adds holds of one space, all seen at seenMS (Unix ms; 0 = now, capped at
// now). Of a hash that stands twice, the later entry counts. The entries' own
// adapters are not looked at. A hash longer than 255 bytes does not fit the layout.
func (b *Batch) Report(sp ranking.Space, seenMS int64, entries []ranking.Entry) {
	for len(entries) > 0 {
		n := min(len(entries), scripts.MaxHashes)
		b.report(sp, seenMS, entries[:n])
		entries = entries[n:]
	}
}

func (b *Batch) report(sp ranking.Space, seenMS int64, entries []ranking.Entry) {
	bytes := 0
	for i := range entries {
		bytes += len(entries[i].Hash)
	}
	a := scripts.ReportArgs{
		Partition: b.keys, Upkeep: b.s.upkeep(), Blocks: b.k.Blocks(SpaceSuffix(sp)),
		Replica: b.replica, Tenant: b.p.Tenant, Model: b.p.Model, SpaceField: SpaceField(sp), Seen: stamp(seenMS),
		Hashes: make([]any, len(entries)),
		Tails:  make([]byte, 0, 4*len(entries)),
		Logged: make([]byte, 0, bytes+5*len(entries)),
	}
	for i := range entries {
		e := &entries[i]
		a.Hashes[i] = e.Hash
		a.Tails = appendTail(a.Tails, e.Tier, e.Tokens)
		a.Logged = appendLoggedHold(a.Logged, e.Hash, e.Tier, e.Tokens)
	}
	b.add(scripts.Report(&a), func(c *scripts.Call) (scripts.Written, error) {
		r, err := c.Reported()
		b.filled = b.filled || r.WasEmpty && err == nil
		b.emptied = b.emptied && err != nil
		return r.Written, err
	})
}

// Evict adds: the replica holds none of hashes in the space any more.
func (b *Batch) Evict(sp ranking.Space, hashes [][]byte) {
	for len(hashes) > 0 {
		n := min(len(hashes), scripts.MaxHashes)
		b.add(scripts.Evict(&scripts.EvictArgs{
			Partition: b.keys, Upkeep: b.s.upkeep(), Replica: b.replica, At: scripts.Now,
			Blocks: []string{b.k.Blocks(SpaceSuffix(sp))}, Fields: []string{SpaceField(sp)}, Hashes: hashes[:n],
		}), func(c *scripts.Call) (scripts.Written, error) {
			r, err := c.Evicted()
			b.emptied = err == nil && r.Empty && r.Removed > 0
			return r.Written, err
		})
		hashes = hashes[n:]
	}
}

// Stats adds: the replica's stats are st, reported at atMS (Unix ms; 0 = now, capped at now).
func (b *Batch) Stats(st *ranking.Stats, atMS int64) {
	b.add(scripts.Stats(b.about(atMS), appendStats(nil, st)), (*scripts.Call).StatsWritten)
}

// Lease adds: the replica serves until d from now, and nothing after. A replica that
// once had a lease needs one from then on, until it is retired.
func (b *Batch) Lease(d time.Duration) {
	b.add(scripts.Lease(b.about(0), max(d.Milliseconds(), 0)), (*scripts.Call).StatsWritten)
}

func (b *Batch) about(atMS int64) *scripts.StatsArgs {
	return &scripts.StatsArgs{
		Partition: b.keys, Upkeep: b.s.upkeep(),
		Replica: b.replica, Tenant: b.p.Tenant, Model: b.p.Model, At: stamp(atMS),
	}
}

func (b *Batch) add(c *scripts.Call, read func(*scripts.Call) (scripts.Written, error)) {
	b.calls = append(b.calls, c)
	b.read = append(b.read, read)
}

// Send makes the changes. On an error some of them may have been made: all can be
// sent again. The receipt is of the last change that was answered.
func (b *Batch) Send(ctx context.Context) (Receipt, error) {
	if len(b.calls) == 0 {
		return Receipt{}, nil
	}
	return b.sent(ctx, scripts.Run(ctx, b.s.rdb, b.calls...))
}

// sent reads the replies to the batch's calls. failed is the error of the round trip.
func (b *Batch) sent(ctx context.Context, failed error) (Receipt, error) {
	var last Receipt
	for i, c := range b.calls {
		w, err := b.read[i](c)
		if err != nil {
			if failed == nil {
				failed = err
			}
			continue
		}
		last = Receipt{NowMS: w.NowMS, Number: w.Number, Writes: w.Writes}
		if w.Garbage > 0 {
			b.s.observe.Garbage("replaced", fmt.Errorf("%w: %v replica %q: %d unreadable values were replaced", ErrGarbage, b.p, b.replica, w.Garbage))
		}
	}
	// What was written is filed even if something else failed.
	if last.Number != 0 {
		if err := b.s.catalogued(ctx, b.p, b.filled || b.emptied); failed == nil {
			failed = err
		}
	}
	if failed != nil {
		// The reply that told of an empty partition may be the one that was lost.
		b.s.touched.forget(b.k.Tag())
		return last, fmt.Errorf("write %v replica %q: %w", b.p, b.replica, failed)
	}
	return last, nil
}

// upkeep is what every write keeps in order.
func (s *Store) upkeep() scripts.Upkeep {
	return scripts.Upkeep{HoldTTLMS: s.keyTTL.Milliseconds(), LogLength: s.logLen}
}

// stamp is a producer's Unix ms as scripts take it. 0 means now; what lies before 2020 is kept as 2020.
func stamp(unixMS int64) int64 {
	if unixMS == 0 {
		return scripts.Now
	}
	return sinceEpoch(unixMS)
}
