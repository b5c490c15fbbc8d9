package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// run is one replay under way.
type run struct {
	o       *Options
	trace   []Request
	tier    *tier
	engines []*engine
	number  map[string]int // of an engine, by its replica id
	started time.Time
	seconds everySecond

	mu      sync.Mutex
	done    int
	next    int // the engine whose turn it is
	reasons map[string]int
	routing Routing
	lag     time.Duration
}

// Run plays the trace against the tier. It returns what it found so far beside the
// error if it was broken off, and a nil result if it never began.
//
// Lookups that fail go round robin, as a gateway would have it; reports and events
// are sent until the tier takes them, for RetryFor at most.
func Run(ctx context.Context, rpc pb.InferenceCacheClient, trace []Request, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	r := &run{
		o:       &o,
		trace:   trace,
		tier:    &tier{rpc: rpc, o: &o},
		engines: newEngines(&o),
		number:  make(map[string]int, o.Engines),
		reasons: map[string]int{},
	}
	for i, e := range r.engines {
		r.number[e.id] = i
	}
	if o.Clear {
		if err := r.clearAll(ctx); err != nil {
			return nil, err
		}
	}
	r.started = time.Now()
	err := r.playAll(ctx)
	return r.result(), err
}

func (r *run) clearAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.o.Pipeline)
	for _, e := range r.engines {
		group.Go(func() error { return r.tier.clear(ctx, e.id) })
	}
	return group.Wait()
}

// playAll hands the requests out in the order of the trace.
func (r *run) playAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	queue := make(chan int)
	group.Go(func() error {
		defer close(queue)
		for i := range r.trace {
			if err := r.awaitStart(ctx, &r.trace[i]); err != nil {
				return err
			}
			select {
			case queue <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range r.o.Concurrency {
		group.Go(func() error {
			for i := range queue {
				if err := r.play(ctx, i); err != nil {
					return fmt.Errorf("request %d of %d: %w", i+1, len(r.trace), err)
				}
				r.finished()
			}
			return nil
		})
	}
	return group.Wait()
}

// awaitStart waits until a request is due by the asked speed.
func (r *run) awaitStart(ctx context.Context, req *Request) error {
	if r.o.Speed == 0 {
		return ctx.Err()
	}
	sinceBegin := time.Duration(req.TimestampMS-r.trace[0].TimestampMS) * time.Millisecond
	due := r.started.Add(time.Duration(float64(sinceBegin) / r.o.Speed))
	return sleep(ctx, time.Until(due))
}

// play looks one request up, runs it on an engine, and returns once the tier knows
// what that changed.
func (r *run) play(ctx context.Context, i int) error {
	req := &r.trace[i]
	c := chainOf(req, r.o.BlockTokens, r.o.Seed)
	r.noteLag(req)
	if err := r.reportLoad(ctx, i); err != nil {
		return err
	}
	reply, err := r.tier.lookup(ctx, &c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && hopeless(err) {
		return fmt.Errorf("lookup: %w", err)
	}
	e, followed := r.route(i, reply)

	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.serve(req)
	if r.o.Slots > 0 {
		e.running.runningAt(req.TimestampMS)
		e.running.start(req.TimestampMS, req.OutputTokens, r.o.TokenTime)
	}
	if followed && reply.GetReasonCode() == reasonPrefixMatch {
		r.judge(int64(reply.GetReplicaScores()[0].GetMatchedTokens()), c.tokens(d.Reused))
	}
	if update := r.updateOf(i, e, &c, &d); update != nil {
		if err := r.tier.report(ctx, update); err != nil {
			return err
		}
	}
	return r.tier.evict(ctx, e.id, d.Evicted)
}

// reportLoad sends every engine's stats when the trace enters a new second.
func (r *run) reportLoad(ctx context.Context, i int) error {
	nowMS := r.trace[i].TimestampMS
	if r.o.Slots == 0 || !r.seconds.passed(nowMS) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.o.Pipeline)
	for _, e := range r.engines {
		group.Go(func() error {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.running.runningAt(nowMS)
			return r.tier.report(ctx, r.emptyUpdate(i, e))
		})
	}
	return group.Wait()
}

func (r *run) noteLag(req *Request) {
	if r.o.Speed == 0 {
		return
	}
	due := float64(req.TimestampMS-r.trace[0].TimestampMS) / r.o.Speed * float64(time.Millisecond)
	r.mu.Lock()
	r.lag = max(r.lag, time.Since(r.started)-time.Duration(due))
	r.mu.Unlock()
}

func (r *run) finished() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.o.Progress != nil {
		r.o.Progress(r.done, len(r.trace))
	}
}

// result sums up; nothing runs any more.
func (r *run) result() *Result {
	res := &Result{Requests: r.done, Total: len(r.trace), Seconds: time.Since(r.started).Seconds()}
	var reused, served int64
	for _, e := range r.engines {
		e.load.Resident = e.cache.Len()
		reused += e.load.Reused
		served += e.load.Blocks
		res.Engines = append(res.Engines, e.load)
	}
	res.Reuse, res.Blocks = compare(r.trace[:r.done], r.o, reused, served)
	lookups := 0
	for _, n := range r.reasons {
		lookups += n
	}
	res.Reasons = reasonCounts(r.reasons, lookups)
	res.Routing = r.routing
	res.Routing.Retries = r.tier.retries.Load()
	res.Routing.LagMS = milliseconds(r.lag)
	res.Latency = Latency{
		Lookup: r.tier.lookups.percentiles(),
		InPod:  r.tier.inPod.percentiles(),
		Report: r.tier.reports.percentiles(),
		Evict:  r.tier.evictions.percentiles(),
	}
	res.Spread = spreadOf(res.Engines)
	return res
}

// BrokenOff tells an interrupt from a tier that failed.
func BrokenOff(err error) bool { return errors.Is(err, context.Canceled) }
