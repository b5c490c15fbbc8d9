package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"inferencecache.io/lookuptier/scripts"
)

// Reasons for which a hold leaves the index without its replica saying so.
const (
	// EvictedExpired: it was not reported again within the tenant's evictionTTL.
	EvictedExpired = "expired"
	// EvictedRetired: its replica was cleared, or let its lease run out.
	EvictedRetired = "retired"
)

// SweepObserver hears what sweeps did. An Observer that is one is told of all
// sweeps of its Store. Methods must be safe for concurrent use.
type SweepObserver interface {
	// Evicted: n holds of the tenant were dropped; reason is EvictedExpired or EvictedRetired.
	Evicted(tenant, reason string, n int64)
	// Swept: a full pass over one partition took d, pauses included.
	Swept(d time.Duration)
	// Behind is how many partitions have had no full pass for two intervals.
	Behind(partitions int)
	// Entries is what Store.Entries returns, once an interval.
	Entries(byModel map[string]int64)
}

// SweepResult is what one pass over a partition came to.
type SweepResult struct {
	// Full: the pass went through. If not, another sweeper is at it, or a recent
	// pass made this one needless.
	Full bool
	// Expired and Retired count dropped holds by reason, Garbage unreadable values and
	// foreign keys.
	Expired, Retired, Garbage int64
	// Lapsed counts replicas that were retired because their lease ran out,
	// Forgotten those that had neither holds nor a recent sign of life.
	Lapsed, Forgotten int64
	// Repaired counts entries of the serving counts that named a replica or a scheme
	// that Redis no longer knows.
	Repaired int64
	// Blocks is how many prefixes are left; Empty tells that nobody holds any.
	Blocks int64
	Empty  bool

	// lastMS is when the last full pass began, this one included.
	lastMS, nowMS int64
}

// SweepNow goes through the whole partition and drops the holds of retired replicas
// and of those whose lease has run out, and holds older than ttl; 0 = the Store's
// KeyTTL. When it returns, what was retired before the call counts nowhere any more.
// It needs no lock: a pass beside another costs time, and nothing else.
func (s *Store) SweepNow(ctx context.Context, p Partition, ttl time.Duration) (SweepResult, error) {
	return s.sweep(ctx, p, sweepHow{ttl: ttl, slice: defaultSlice})
}

// sweepNow is SweepNow for the Store's own readers. It spares lapsed replicas as long
// as sweepers do: to read is no reason to take from a sidecar what it may come back to.
func (s *Store) sweepNow(ctx context.Context, p Partition) error {
	_, err := s.sweep(ctx, p, sweepHow{slice: defaultSlice, grace: defaultGrace})
	return err
}

// sweepHow says how a pass goes.
type sweepHow struct {
	ttl   time.Duration // of holds and of replicas without holds; 0 = the Store's KeyTTL
	slice int           // about how many blocks a script call looks at
	// lock lasts this long unless a slice renews it; 0 = no lock, and due is not asked.
	lock, due time.Duration
	grace     time.Duration // after which a lapsed lease retires its replica
	rest      float64       // pause after a slice, in times its duration
}

const (
	defaultSlice = 500
	defaultGrace = 5 * time.Minute
	// logAge is for how long a log entry can be of use: a follower that is behind by
	// more reads the partition anew. It keeps idle partitions from holding full logs.
	logAge = 5 * time.Minute
	// settleLimit bounds how long a pass that is through may take to file what is left.
	settleLimit = 2 * time.Second
)

// errSweepLost: the lock ran out during the pass and somebody else has it.
var errSweepLost = errors.New("another sweeper took over")

// sweep is one pass. Each script call is atomic, and a pass that ends anywhere
// leaves the partition right: it only leaves more to do for the next.
func (s *Store) sweep(ctx context.Context, p Partition, how sweepHow) (r SweepResult, err error) {
	if how.ttl <= 0 {
		how.ttl = s.keyTTL
	}
	k := p.Keys()
	keys := k.script()
	lock := scripts.SweepLock{Key: k.Lock(), Token: "s" + rand.Text(), LockMS: how.lock.Milliseconds()}

	call := scripts.SweepBegin(&scripts.SweepBeginArgs{
		Partition: keys, SweepLock: lock,
		DueMS: how.due.Milliseconds(), GraceMS: how.grace.Milliseconds(), LogLength: s.logLen,
	})
	if err := scripts.Run(ctx, s.rdb, call); err != nil {
		err = fmt.Errorf("sweep %v: begin: %w", p, err)
		if wrongType(err) {
			s.observe.Garbage(garbageKey, err) // which names the key; nothing of p can be swept
		}
		return r, err
	}
	begun, err := call.Begun()
	if err != nil {
		return r, fmt.Errorf("sweep %v: begin: %w", p, err)
	}
	r.nowMS, r.lastMS, r.Lapsed = begun.NowMS, begun.LastMS, begun.Retired
	if begun.State != scripts.SweepDone {
		return r, nil
	}
	start := time.Now()
	defer func() { s.tellSwept(p, &r, time.Since(start)) }()

	end := scripts.SweepEndArgs{
		Partition: keys, SweepLock: lock, ReplicaTTLMS: how.ttl.Milliseconds(),
		Upkeep: s.upkeep(), LogAgeMS: logAge.Milliseconds(), BeganMS: begun.NowMS,
	}
	for _, field := range begun.Fields {
		sp, err := ParseSpaceField(field)
		if err != nil {
			s.observe.Garbage("space", fmt.Errorf("%w: %v: %w", ErrGarbage, p, err))
			continue
		}
		blocks := k.Blocks(SpaceSuffix(sp))
		err = s.sweepSpace(ctx, p, &scripts.SweepArgs{
			Partition: keys, SweepLock: lock, Blocks: blocks, Field: field,
			HoldTTLMS: how.ttl.Milliseconds(), LogLength: s.logLen, Cursor: "0", Count: how.slice,
		}, how.rest, &r)
		switch {
		case err == nil:
			end.Blocks, end.Fields = append(end.Blocks, blocks), append(end.Fields, field)
		case strings.Contains(err.Error(), blocks) && s.foreign(blocks, err):
			r.Garbage++ // the space stays registered, and all others are swept
		default:
			return r, fmt.Errorf("sweep %v: %w", p, err)
		}
	}
	if err := s.sweepEnd(ctx, &end, &r); err != nil {
		return r, fmt.Errorf("sweep %v: end: %w", p, err)
	}
	r.lastMS = begun.NowMS
	// A sweeper that is told to stop here would leave an emptied partition in the catalog.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	return r, s.settle(ctx, p)
}

// sweepSpace goes through one space slice by slice.
func (s *Store) sweepSpace(ctx context.Context, p Partition, a *scripts.SweepArgs, rest float64, r *SweepResult) error {
	for {
		start := time.Now()
		call := scripts.Sweep(a)
		if err := scripts.Run(ctx, s.rdb, call); err != nil {
			return err
		}
		slice, err := call.Swept()
		if err != nil {
			return err
		}
		if slice.State == scripts.SweepLost {
			return errSweepLost
		}
		r.Expired += slice.Expired
		r.Retired += slice.Retired
		r.Garbage += slice.Garbage
		if slice.Garbage > 0 {
			s.observe.Garbage("hold", fmt.Errorf("%w: %v: key %s: %d values were no hold records and were dropped", ErrGarbage, p, a.Blocks, slice.Garbage))
		}
		if slice.Cursor == "0" {
			return nil
		}
		a.Cursor = slice.Cursor
		if err := sleep(ctx, time.Duration(rest*float64(time.Since(start)))); err != nil {
			return err
		}
	}
}

func (s *Store) sweepEnd(ctx context.Context, end *scripts.SweepEndArgs, r *SweepResult) error {
	call := scripts.SweepEnd(end)
	if err := scripts.Run(ctx, s.rdb, call); err != nil {
		return err
	}
	ended, err := call.SweepEnded()
	if err != nil {
		return err
	}
	if ended.State == scripts.SweepLost {
		return errSweepLost
	}
	r.Full = true
	r.Forgotten, r.Repaired = ended.Replicas, ended.Repaired
	r.Blocks, r.Empty = ended.Blocks, ended.Left != scripts.HasHolds
	return nil
}

func (s *Store) tellSwept(p Partition, r *SweepResult, d time.Duration) {
	o, ok := s.observe.(SweepObserver)
	if !ok {
		return
	}
	if r.Expired > 0 {
		o.Evicted(p.Tenant, EvictedExpired, r.Expired)
	}
	if r.Retired > 0 {
		o.Evicted(p.Tenant, EvictedRetired, r.Retired)
	}
	if r.Full {
		o.Swept(d)
	}
}

// sleep waits for d, or for ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
