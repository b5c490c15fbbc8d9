package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"inferencecache.io/lookuptier/client"
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

const (
	deadline = 100 * time.Millisecond // of each lookup, the gateway's own
	slack    = 2 * time.Second        // that a busy machine may add before it counts as hanging
	// killGrace is how long after a pod's SIGKILL a call may still have been sent to it.
	killGrace = 5 * time.Second
)

var legal = []client.Reason{client.PrefixMatch, client.TenantHot, client.AffinityHint, client.NoHint, client.Timeout,
	client.PolicyRequiresChain, client.UnknownTenant, client.UnknownModel, client.UnknownHashScheme}

// gateways ask through the SDK, all the time.
type gateways struct {
	c    *client.Client
	w    *world
	stop chan struct{}
	done sync.WaitGroup

	mu        sync.Mutex
	killed    time.Time // when a pod was last killed
	reasons   map[string]int
	took      []time.Duration
	lost      int // went with a killed pod
	local     int // timeouts that no pod answered
	failed    int
	firstFail error
	slow      []string      // some that took three times their deadline, and what went on
	late      time.Duration // by which this process' own alarm clock was late at worst

	during func() string // what goes on
}

func newGateways(c *client.Client, w *world, during func() string) *gateways {
	return &gateways{c: c, w: w, during: during, stop: make(chan struct{}), reasons: map[string]int{}}
}

// podKilled tells that lookups may be lost from now on.
func (g *gateways) podKilled() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.killed = time.Now()
}

func (g *gateways) start(n int, every time.Duration, seed uint64) {
	g.done.Go(g.control)
	for i := range n {
		g.done.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-g.stop:
					return
				case <-tick.C:
					g.ask(rng)
				}
			}
		})
	}
}

// control sleeps and looks how late it wakes: what a busy machine does to this process has nothing to
// do with lookups.
func (g *gateways) control() {
	const nap = 10 * time.Millisecond
	for {
		began := time.Now()
		select {
		case <-g.stop:
			return
		case <-time.After(nap):
			g.mu.Lock()
			g.late = max(g.late, time.Since(began)-nap)
			g.mu.Unlock()
		}
	}
}

// request asks for a known prompt: most as a chain, some by token ids or by one hash, a few under a name that nobody reports.
func request(rng *rand.Rand, p *prompt) *pb.LookupRouteRequest {
	req := &pb.LookupRouteRequest{TenantId: tenant, ModelId: model, HashScheme: scheme}
	switch n := rng.IntN(100); {
	case n < 70:
		req.BlockHashes = p.hashes
		for range p.hashes {
			req.BlockTokenCounts = append(req.BlockTokenCounts, engineBlock)
		}
	case n < 90:
		req.TokenIds = p.tokens
	default:
		req.PrefixHash, req.PrefixTokenCount = p.hashes[len(p.hashes)-1], int32(len(p.tokens))
		if n >= 98 {
			req.ModelId = "nobody's"
		}
	}
	return req
}

func (g *gateways) ask(rng *rand.Rand) {
	req := request(rng, &g.w.prompts[rng.IntN(len(g.w.prompts))])
	began := time.Now()
	r := g.c.LookupRoute(context.Background(), req)
	took := time.Since(began)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.took = append(g.took, took)
	if took > 3*deadline && len(g.slow) < 20 {
		g.slow = append(g.slow, fmt.Sprintf("%s: %v, %s, %s", time.Now().Format(time.TimeOnly), took.Round(time.Millisecond), r.Reason, g.during()))
	}
	switch {
	case r.Err == nil:
		g.reasons[string(r.Reason)]++
	case r.Reason == client.Timeout:
		g.local++
	case status.Code(errors.Unwrap(r.Err)) == codes.Unavailable || status.Code(r.Err) == codes.Unavailable:
		if began.Sub(g.killed) < killGrace {
			g.lost++
			return
		}
		fallthrough
	default:
		g.failed++
		if g.firstFail == nil {
			g.firstFail = fmt.Errorf("%v, %v after a kill: %w", time.Now().Format(time.TimeOnly), began.Sub(g.killed), r.Err)
		}
	}
}

func (g *gateways) counts() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%d lookups, %d failed, %d lost with killed pods, %d local timeouts", len(g.took), g.failed, g.lost, g.local)
}

func (g *gateways) summary() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.took)
	at := func(q float64) time.Duration {
		return g.took[int(q*float64(len(g.took)-1))].Round(10 * time.Microsecond)
	}
	out := []string{
		fmt.Sprintf("lookups: %d; failed %d; lost with killed pods %d; timed out in the gateway %d", len(g.took), g.failed, g.lost, g.local),
		fmt.Sprintf("took p50 %v, p99 %v, p99.9 %v, slowest %v, with a deadline of %v", at(.5), at(.99), at(.999), at(1), deadline),
		fmt.Sprintf("a sleep of 10ms in the gateways' process took up to %v longer", g.late.Round(time.Millisecond)),
	}
	for _, line := range g.slow {
		out = append(out, "  slow: "+line)
	}
	for _, reason := range slices.Sorted(maps.Keys(g.reasons)) {
		out = append(out, fmt.Sprintf("  %-22s %d", reason, g.reasons[reason]))
	}
	return out
}

func (g *gateways) want(t testing.TB) {
	t.Helper()
	if g.failed > 0 {
		t.Errorf("%d lookups failed, the first: %v", g.failed, g.firstFail)
	}
	for reason := range g.reasons {
		if !slices.Contains(legal, client.Reason(reason)) {
			t.Errorf("an illegal reason: %q", reason)
		}
	}
	if g.reasons[string(client.PrefixMatch)] == 0 {
		t.Error("no lookup ever matched")
	}
	if slowest := slices.Max(g.took); slowest > deadline+slack+g.late {
		t.Errorf("a lookup took %v with a deadline of %v", slowest, deadline)
	}
}
