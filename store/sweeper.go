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
	// 0 = 0.25, at most 1. A pass that would take more than half an interval so does
	// without rests.
	Share float64
	// Workers is how many partitions are swept at a time; 0 = 4.
	Workers int
}

// lockTTL is how long a partition waits for a sweeper that died in a pass. Every slice
// renews the lock; a slice takes milliseconds.
const lockTTL = 15 * time.Second

// The parts of an interval: how often a sweeper looks, and how old the last pass must
// be to make another. Passes over a partition then begin at most
// (dueParts + 1¼) / intervalParts of it apart, whichever pods make them.
const (
	intervalParts = 8
	dueParts      = 6
)

// Sweeper drops what is dead or expired from all partitions of a Store. Every lookup
// pod runs one: they share the work through a lock for each partition, and none is
// needed for the others to go on. Create it with NewSweeper; it is safe for concurrent use.
type Sweeper struct {
	store *Store
	o     SweeperOptions
	slots chan struct{} // one for each pass that runs

	failed sampled // lines about passes that failed

	mu   sync.Mutex
	last map[Partition]swept
	busy map[Partition]bool
	told time.Time // when the entries were last counted
}

// swept is what a Sweeper knows of a partition's last full pass.
type swept struct {
	beganMS, nowMS int64         // Redis' times
	at             time.Time     // our time at nowMS
	work           time.Duration // of our own last pass, without rests
}

// age of the last full pass; that of a partition that never had one is counted from
// when we met it.
func (s swept) age() time.Duration {
	began := s.beganMS
	if began == 0 {
		began = s.nowMS
	}
	return time.Duration(s.nowMS-began)*time.Millisecond + time.Since(s.at)
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
	setDefault(&o.Grace, defaultGrace)
	setDefault(&o.Slice, defaultSlice)
	setDefault(&o.Share, 0.25)
	setDefault(&o.Workers, 4)
	if o.EvictionTTL == nil {
		ttl := ranking.DefaultPolicy().EvictionTTL
		o.EvictionTTL = func(string) time.Duration { return ttl }
	}
	return &Sweeper{
		store: s, o: o, slots: make(chan struct{}, o.Workers),
		last: map[Partition]swept{}, busy: map[Partition]bool{},
	}, nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Run sweeps until ctx is done, which is the only way it ends; then it waits for what
// is on its way. Errors are logged, and the work is tried again.
func (w *Sweeper) Run(ctx context.Context) {
	failed := func(err error) {
		if ctx.Err() == nil {
			w.failed.line(w.store.log.Warn, "sweep incomplete: it will be tried again", "error", err)
		}
	}
	var passes sync.WaitGroup
	defer passes.Wait()
	step := w.o.Interval / intervalParts
	wait := rand.N(step) // pods that start together do not look together
	for sleep(ctx, wait) == nil {
		if err := w.round(ctx, &passes, failed); err != nil {
			failed(err)
		}
		wait = step*3/4 + rand.N(step/2)
	}
}

// Tick makes the passes that are due, waits for them, and returns what went wrong.
func (w *Sweeper) Tick(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	var passes sync.WaitGroup
	err := w.round(ctx, &passes, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	passes.Wait()
	return errors.Join(append(errs, err)...)
}

// round starts the passes that are due, in random order, as slots become free. It does
// not wait for them: a pass over a huge partition must not keep the small ones waiting.
func (w *Sweeper) round(ctx context.Context, passes *sync.WaitGroup, failed func(error)) error {
	if err := w.store.CheckLayout(ctx); err != nil {
		return err // what is not laid out as we think is not touched
	}
	list, err := w.store.Partitions(ctx)
	if err != nil {
		return err
	}
	w.keepOnly(list)
	for _, i := range rand.Perm(len(list)) {
		p := list[i]
		if !w.claim(p) {
			continue
		}
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			w.release(p)
			return ctx.Err()
		}
		passes.Go(func() {
			defer func() { w.release(p); <-w.slots }()
			if err := w.pass(ctx, p); err != nil {
				failed(err)
			}
		})
	}
	w.tellBehind(list)
	return w.tellEntries(ctx)
}

// claim tells whether a pass over p is due and not on its way, and if so takes it.
func (w *Sweeper) claim(p Partition) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, met := w.last[p]
	if w.busy[p] || met && s.beganMS != 0 && s.age() < w.dueAge() {
		return false
	}
	w.busy[p] = true
	return true
}

func (w *Sweeper) release(p Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, p)
}

func (w *Sweeper) dueAge() time.Duration { return w.o.Interval * dueParts / intervalParts }

func (w *Sweeper) pass(ctx context.Context, p Partition) error {
	w.mu.Lock()
	old, met := w.last[p]
	w.mu.Unlock()
	rest := 1/w.o.Share - 1
	if float64(old.work)*(1+rest) > float64(w.o.Interval/2) {
		rest = 0 // resting, it would not keep to the interval
	}
	start := time.Now()
	r, err := w.store.sweep(ctx, p, sweepHow{
		ttl: w.o.EvictionTTL(p.Tenant), slice: w.o.Slice,
		lock: lockTTL, due: w.dueAge(), grace: w.o.Grace, rest: rest,
	})
	if r.nowMS != 0 {
		s := swept{beganMS: r.lastMS, nowMS: r.nowMS, at: start, work: old.work}
		if r.Full {
			s.work = time.Duration(float64(time.Since(start)) / (1 + rest))
		}
		if s.beganMS == 0 && met {
			s.at = old.at // it stays as old as when we met it
		}
		w.mu.Lock()
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
		if s, met := w.last[p]; met && s.age() > 2*w.o.Interval {
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
	again := w.told.IsZero() || time.Since(w.told) >= w.o.Interval*(intervalParts-1)/intervalParts
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
