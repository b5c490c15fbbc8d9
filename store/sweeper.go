package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// SweeperOptions says how a Sweeper works. The zero value is good.
type SweeperOptions struct {
	// Interval is within how long an expired hold or replica goes; 0 = 1 min, at least 100 ms.
	Interval time.Duration
	// EvictionTTL is how old the holds of a tenant may become; nil = the default
	// policy's for all. It is asked at every pass, so that a reloaded policy counts.
	EvictionTTL func(tenant string) time.Duration
	// Grace is for how long a lease must have run out before its replica is retired
	// for good; 0 = 5 min. Readers leave the replica out from the moment the lease ends;
	// until it is retired, its sidecar can come back to all that it had reported.
	Grace time.Duration
	// Slice is about how many blocks one script call looks at; 0 = 500.
	Slice int
	// Share bounds the part of the time that one partition's pass keeps Redis busy;
	// 0 = 0.25, at most 1.
	Share float64
	// Workers is how many partitions are swept at a time; 0 = 2.
	Workers int
}

// lockTTL is how long a partition waits for a sweeper that died in a pass. Every slice
// renews the lock; a slice takes milliseconds.
const lockTTL = 15 * time.Second

// The parts of an interval: how often a sweeper looks, and how old the last pass must
// be to make another. Passes over a partition then begin at most
// (dueParts + 1¼) / parts of an interval apart, whichever pods make them.
const (
	parts    = 8
	dueParts = 6
)

// Sweeper drops what is dead or expired from all partitions of a Store. Every lookup
// pod runs one: they share the work through a lock for each partition, and none is
// needed for the others to go on. Create it with NewSweeper.
type Sweeper struct {
	store *Store
	o     SweeperOptions

	mu   sync.Mutex
	last map[Partition]swept
	told time.Time // when the entries were last counted
}

// swept is what a Sweeper knows of a partition's last full pass.
type swept struct {
	beganMS, nowMS int64     // Redis' times
	at             time.Time // our time at nowMS
}

// age of the last full pass; that of a partition that never had one is counted from when we met it.
func (s swept) age() time.Duration {
	return time.Duration(s.nowMS-s.beganMS)*time.Millisecond + time.Since(s.at)
}

// NewSweeper checks o. Nothing runs until Run or Tick.
func NewSweeper(s *Store, o SweeperOptions) (*Sweeper, error) {
	switch {
	case o.Interval != 0 && o.Interval < 100*time.Millisecond:
		return nil, fmt.Errorf("sweeper: interval %v is too short: give at least 100ms", o.Interval)
	case o.Share < 0 || o.Share > 1:
		return nil, fmt.Errorf("sweeper: share %v: give more than 0, at most 1", o.Share)
	case o.Slice < 0 || o.Workers < 0 || o.Grace < 0:
		return nil, errors.New("sweeper: Slice, Workers and Grace must not be negative")
	}
	setDefault(&o.Interval, time.Minute)
	setDefault(&o.Grace, 5*time.Minute)
	setDefault(&o.Slice, defaultSlice)
	setDefault(&o.Share, 0.25)
	setDefault(&o.Workers, 2)
	if o.EvictionTTL == nil {
		ttl := ranking.DefaultPolicy().EvictionTTL
		o.EvictionTTL = func(string) time.Duration { return ttl }
	}
	return &Sweeper{store: s, o: o, last: map[Partition]swept{}}, nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Run sweeps until ctx is done, which is the only way it ends. A script that runs
// when ctx ends is waited for. Errors are logged, and the work is tried again.
func (w *Sweeper) Run(ctx context.Context) {
	step := w.o.Interval / parts
	wait := rand.N(step) // pods that start together do not tick together
	for sleep(ctx, wait) == nil {
		if err := w.Tick(ctx); err != nil && ctx.Err() == nil {
			w.store.log.WarnContext(ctx, "sweep incomplete: it will be tried again", "error", err)
		}
		wait = step*3/4 + rand.N(step/2)
	}
}

// Tick makes the passes that are due, in random order, and returns what went wrong.
func (w *Sweeper) Tick(ctx context.Context) error {
	if err := w.store.CheckLayout(ctx); err != nil {
		return err // what is not laid out as we think is not touched
	}
	list, err := w.store.Partitions(ctx)
	if err != nil {
		return err
	}
	w.keepOnly(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })

	errs := w.passes(ctx, list)
	w.tellBehind(list)
	return errors.Join(errs, w.tellEntries(ctx))
}

// passes lets Workers go through list. The first few errors are kept.
func (w *Sweeper) passes(ctx context.Context, list []Partition) error {
	const kept = 8
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		work = make(chan Partition)
	)
	for range w.o.Workers {
		wg.Go(func() {
			for p := range work {
				if err := w.pass(ctx, p); err != nil {
					mu.Lock()
					if len(errs) < kept {
						errs = append(errs, err)
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, p := range list {
		if ctx.Err() != nil {
			break
		}
		if w.due(p) {
			work <- p
		}
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

func (w *Sweeper) due(p Partition) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, met := w.last[p]
	return !met || s.beganMS == 0 || s.age() >= w.dueAge()
}

func (w *Sweeper) dueAge() time.Duration { return w.o.Interval * dueParts / parts }

func (w *Sweeper) pass(ctx context.Context, p Partition) error {
	r, err := w.store.sweep(ctx, p, sweepHow{
		ttl: w.o.EvictionTTL(p.Tenant), slice: w.o.Slice,
		lock: lockTTL, due: w.dueAge(), grace: w.o.Grace, rest: 1/w.o.Share - 1,
	})
	if r.nowMS != 0 {
		w.mu.Lock()
		s := swept{beganMS: r.lastMS, nowMS: r.nowMS, at: time.Now()}
		if old, met := w.last[p]; s.beganMS == 0 && met {
			s.at = old.at // it stays as old as when we met it
		}
		w.last[p] = s
		w.mu.Unlock()
	}
	if errors.Is(err, errSweepLost) {
		return nil // the other one goes on with it
	}
	return err
}

// keepOnly forgets partitions that the catalog no longer has.
func (w *Sweeper) keepOnly(list []Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := make(map[Partition]swept, len(list))
	for _, p := range list {
		if s, ok := w.last[p]; ok {
			kept[p] = s
		}
	}
	w.last = kept
}

func (w *Sweeper) tellBehind(list []Partition) {
	o, ok := w.store.observe.(SweepObserver)
	if !ok {
		return
	}
	w.mu.Lock()
	behind := 0
	for _, p := range list {
		s, met := w.last[p]
		if s.beganMS == 0 {
			s.beganMS = s.nowMS // never swept: as old as our acquaintance
		}
		if met && s.age() > 2*w.o.Interval {
			behind++
		}
	}
	w.mu.Unlock()
	o.Behind(behind)
}

// tellEntries counts the entries once an interval, if anybody wants to know.
func (w *Sweeper) tellEntries(ctx context.Context) error {
	o, ok := w.store.observe.(SweepObserver)
	if !ok {
		return nil
	}
	w.mu.Lock()
	again := w.told.IsZero() || time.Since(w.told) >= w.o.Interval*(parts-1)/parts
	if again {
		w.told = time.Now()
	}
	w.mu.Unlock()
	if !again {
		return nil
	}
	entries, err := w.store.Entries(ctx)
	if err != nil {
		return err
	}
	o.Entries(entries)
	return nil
}
