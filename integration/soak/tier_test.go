package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"inferencecache.io/lookuptier/client"
	"inferencecache.io/lookuptier/integration/rig"
)

// tier is everything that runs.
type tier struct {
	t     testing.TB
	began time.Time
	world *world

	redises []*rig.Server
	proxies map[string]*rig.Proxy // by who goes through it; none in front of a Cluster
	rdb     redis.UniversalClient
	shards  int

	pods      []*lookupPod // the first is never restarted
	engines   []*engine
	reporters []*reporter
	gateways  *gateways
	policies  string // directory

	phase atomic.Pointer[string]

	stop chan struct{} // of the producers
	done sync.WaitGroup
}

func newTier(t testing.TB, topology string, seed uint64, requests int) *tier {
	t.Helper()
	s := &tier{t: t, began: time.Now(), world: newWorld(t, requests, seed), shards: 1, policies: t.TempDir(), stop: make(chan struct{}), proxies: map[string]*rig.Proxy{}}
	var podURL, sidecarURL string
	switch topology {
	case "standalone":
		r := rig.Standalone(t)
		s.redises, s.rdb = []*rig.Server{r}, r.Client()
		s.proxies["pods"], s.proxies["sidecars"] = rig.NewProxy(t, r.Addr()), rig.NewProxy(t, r.Addr())
		podURL, sidecarURL = "redis://"+s.proxies["pods"].Addr(), "redis://"+s.proxies["sidecars"].Addr()
	case "cluster":
		set := rig.Cluster(t, 3)
		s.redises, s.rdb, s.shards = set.Nodes, set.Client(), 3
		podURL, sidecarURL = set.URL(), set.URL()
	default:
		t.Fatalf("-topology %s: write standalone or cluster", topology)
	}
	writePolicy(t, s.policies, goodPolicy)
	shards := fmt.Sprintf("--shards=%d", s.shards)
	addrs := resolver.State{}
	for range 3 {
		p := startPod(t, "--redis", podURL, shards, "--policy-dir", s.policies, "--sweep-interval", "5s", "--cache-bytes", "32MiB")
		s.pods = append(s.pods, p)
		addrs.Addresses = append(addrs.Addresses, resolver.Address{Addr: p.grpcAddr})
	}
	s.waitReady()

	names := manual.NewBuilderWithScheme("soak")
	names.InitialState(addrs)
	c, err := client.Dial("soak:///pods", client.Options{Timeout: deadline, GRPC: []grpc.DialOption{grpc.WithResolvers(names)}, OnMismatch: func(client.Mismatch) {}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })

	for i, onExit := range []string{"retire", "keep", "keep"} {
		s.engines = append(s.engines, startEngine(t, fmt.Sprintf("engine-%d", i), sidecarURL, len(s.world.blocks)/3, shards, "--on-exit", onExit))
	}
	for i := range 2 {
		s.reporters = append(s.reporters, startReporter(t, c, s.world, fmt.Sprintf("grpc-%d", i), len(s.world.blocks)/5))
	}
	s.doing("starting")
	s.gateways = newGateways(c, s.world, func() string { return *s.phase.Load() })
	return s
}

func (s *tier) startTraffic() {
	run := func(n uint64, every time.Duration, serve func(*prompt) error) {
		s.done.Go(func() {
			if err := serveUntil(s.stop, s.world, *seed+n, every, serve); err != nil {
				s.t.Errorf("a producer failed: %v", err)
			}
		})
	}
	for i, e := range s.engines {
		run(uint64(i), 150*time.Millisecond, e.serve)
	}
	for i, r := range s.reporters {
		// Each eviction is a call of its own: dozens for a prompt.
		run(uint64(10+i), 600*time.Millisecond, r.serve)
	}
	s.gateways.start(4, 15*time.Millisecond, *seed)
	s.t.Cleanup(func() { // a test that fails halfway
		s.stopGateways()
		select {
		case <-s.stop:
		default:
			close(s.stop)
		}
		s.done.Wait()
	})
}

// stopProducers lets the engines rest, so that there is something to compare with. It waits until
// all that producers over gRPC had queued is acknowledged, and says how long that took.
func (s *tier) stopProducers() time.Duration {
	s.t.Helper()
	began := time.Now()
	close(s.stop)
	s.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, r := range s.reporters {
		require.NoError(s.t, r.finish(ctx), "the last reports of %s: %+v", r.replica, r.rep.Stats())
	}
	return time.Since(began)
}

func (s *tier) stopGateways() {
	select {
	case <-s.gateways.stop:
	default:
		close(s.gateways.stop)
	}
	s.gateways.done.Wait()
}

func (s *tier) producers() (all []producer) {
	for _, e := range s.engines {
		all = append(all, e)
	}
	for _, r := range s.reporters {
		all = append(all, r)
	}
	return all
}

func (s *tier) waitReady() {
	s.t.Helper()
	for i, p := range s.pods {
		rig.Eventually(s.t, time.Minute, fmt.Sprintf("pod %d being ready", i), p.ready)
	}
}

// doing names what goes on, for the progress lines.
func (s *tier) doing(what string) { s.phase.Store(&what) }

// progress says every ten seconds how things are, until it is told to stop.
func (s *tier) progress() (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-tick.C:
				state := "does not answer"
				if veteran, err := s.pods[0].figures(); err == nil {
					state = veteran.String()
				}
				s.t.Logf("%4.0fs %s; pod 0 %s; %s", time.Since(s.began).Seconds(), s.gateways.counts(), state, *s.phase.Load())
			}
		}
	}()
	return sync.OnceFunc(func() { close(stopped); <-done })
}

// writePolicy replaces the tenant's CachePolicy in one step.
func writePolicy(t testing.TB, dir, spec string) {
	t.Helper()
	path := filepath.Join(dir, "policy.yaml")
	text := strings.Join([]string{"apiVersion: inferencecache.io/v1alpha1", "kind: CachePolicy", "metadata: {name: p, namespace: " + tenant + "}", "spec: " + spec, ""}, "\n")
	require.NoError(t, os.WriteFile(path+".tmp", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".tmp", path))
}

// goodPolicy leaves every match in the answer, so that answers can be compared with caches.
const goodPolicy = `{evictionTTL: 30m, minimumMatchedTokens: 16, routingFloorScore: "0"}`
