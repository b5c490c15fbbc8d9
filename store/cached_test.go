package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

const longEnough = 20 * time.Second

// pod is a lookup pod's index: a Store with a memory in front.
type pod struct {
	*store.Cached
	t   testing.TB
	rdb redis.UniversalClient
}

func newPod(t testing.TB, url string, shards int, o store.CachedOptions) *pod {
	rdb, err := store.Dial(store.DialOptions{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := store.Open(ctx, store.Options{Redis: rdb, Shards: shards})
	require.NoError(t, err)
	c, err := store.NewCached(s, o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &pod{c, t, rdb}
}

func urlOf(addr string) string { return "redis://" + addr }

// runs is what the pod answers now, by replica.
func (p *pod) runs(q *ranking.Query) (map[string]int, *ranking.Evidence) {
	p.t.Helper()
	ev := new(ranking.Evidence)
	require.NoError(p.t, p.Match(ctx, q, ev))
	return blocksOf(ev), ev
}

func blocksOf(ev *ranking.Evidence) map[string]int {
	got := map[string]int{}
	for _, r := range ev.Runs {
		got[ev.Serving[r.Replica].ID] = r.Blocks
	}
	return got
}

// warm asks until the answer comes from memory.
func (p *pod) warm(q *ranking.Query) {
	p.t.Helper()
	rig.Eventually(p.t, longEnough, "answers from memory", func() error {
		ev := new(ranking.Evidence)
		for range 3 { // at once: that a shard is empty is not remembered for long
			if err := p.Match(ctx, q, ev); err != nil {
				return err
			}
		}
		if ev.Walked > 0 || ev.Cached == 0 || ev.Degraded {
			return fmt.Errorf("%d walked, %d cached, degraded %v", ev.Walked, ev.Cached, ev.Degraded)
		}
		return nil
	})
}

func TestWarmLookupsNeedNoRedis(t *testing.T) {
	srv := rig.Standalone(t)
	p := newPod(t, urlOf(srv.Addr()), 1, store.CachedOptions{})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1", "b2")))
	q := query(vllm, "b0", "b1", "b2", "b3")
	p.warm(q)
	commands := func() (n int) {
		for _, c := range []string{"hmget", "evalsha", "eval", "hgetall"} {
			var calls int
			if _, err := fmt.Sscanf(lineOf(p.rdb.Info(ctx, "commandstats").Val(), "cmdstat_"+c+":"), "cmdstat_"+c+":calls=%d", &calls); err == nil {
				n += calls
			}
		}
		return n
	}
	before := commands()
	for range 1000 {
		got, ev := p.runs(q)
		require.Equal(t, map[string]int{"a": 3}, got)
		require.Equal(t, 4, ev.Cached)
		require.False(t, ev.Degraded)
	}
	require.Equal(t, before, commands())
}

func TestAWarmLookupAllocatesNextToNothing(t *testing.T) {
	p := newPod(t, urlOf(miniredis.RunT(t).Addr()), 1, store.CachedOptions{})
	var chain []string
	for i := range 256 {
		chain = append(chain, fmt.Sprintf("%08d", i))
	}
	for i := range 8 {
		require.NoError(t, p.Report(ctx, report(fmt.Sprint("engine-", i), vllm, 0, chain...)))
	}
	q, ev := query(vllm, chain...), new(ranking.Evidence)
	p.warm(q)
	allocations := testing.AllocsPerRun(200, func() { require.NoError(t, p.Match(ctx, q, ev)) })
	require.Len(t, ev.Runs, 8)
	require.LessOrEqual(t, allocations, 10.0)
}

func lineOf(info, prefix string) string {
	for line := range splitLines(info) {
		if len(line) > len(prefix) && line[:len(prefix)] == prefix {
			return line
		}
	}
	return ""
}

func splitLines(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for len(s) > 0 {
			i := 0
			for i < len(s) && s[i] != '\n' && s[i] != '\r' {
				i++
			}
			if !yield(s[:i]) {
				return
			}
			s = s[min(i+1, len(s)):]
		}
	}
}

// cachedEverywhere runs a test on all that a pod may be started with.
func cachedEverywhere(t *testing.T, test func(t *testing.T, url string, shards int)) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("redis/shards=%d", shards), func(t *testing.T) {
			t.Parallel()
			test(t, urlOf(rig.Standalone(t).Addr()), shards)
		})
		t.Run(fmt.Sprintf("miniredis/shards=%d", shards), func(t *testing.T) {
			t.Parallel()
			test(t, urlOf(miniredis.RunT(t).Addr()), shards)
		})
		t.Run(fmt.Sprintf("cluster/shards=%d", shards), func(t *testing.T) {
			t.Parallel()
			test(t, rig.Cluster(t, 3).URL(), shards)
		})
	}
}

func TestOwnWritesAreVisibleToTheNextLookup(t *testing.T) {
	cachedEverywhere(t, func(t *testing.T, url string, shards int) {
		p := newPod(t, url, shards, store.CachedOptions{})
		chain := []string{"b0", "b1", "b2", "b3"}
		q := query(vllm, chain...)
		replicas := []string{"a", "b", "c"}
		for _, r := range replicas {
			require.NoError(t, p.Report(ctx, report(r, vllm, 0, chain[:2]...)))
		}
		want := map[string]int{"a": 2, "b": 2, "c": 2}
		p.warm(q)
		for i := range 120 {
			r := replicas[i%3]
			switch i % 7 {
			case 0, 1, 4:
				n := 1 + i%4
				require.NoError(t, p.Report(ctx, report(r, vllm, 0, chain[:n]...)))
				want[r] = max(want[r], n)
			case 2, 5, 6:
				n := i % 4
				require.NoError(t, p.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: r, Hash: []byte(chain[n])}))
				for at := n; at < 4; at++ { // so that want is simple, all after it too
					require.NoError(t, p.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: r, Hash: []byte(chain[at])}))
				}
				if want[r] = min(want[r], n); want[r] == 0 {
					delete(want, r)
				}
			case 3:
				require.NoError(t, p.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: r}))
				delete(want, r)
			}
			got, _ := p.runs(q)
			require.Equal(t, want, got, "after change %d", i)
		}
	})
}

// Several writers of one pod share the readings that make the memory catch up, while
// another pod writes too.
func TestOwnWritesOfManyWritersAreVisibleToTheNextLookup(t *testing.T) {
	cachedEverywhere(t, func(t *testing.T, url string, shards int) {
		p, other := newPod(t, url, shards, store.CachedOptions{}), newPod(t, url, shards, store.CachedOptions{})
		chain := []string{"b0", "b1", "b2", "b3"}
		q := query(vllm, chain...)
		require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0")))
		p.warm(q)
		var writers errgroup.Group
		for w := range 6 {
			replica := fmt.Sprint("writer-", w)
			by := p
			if w >= 4 {
				by = other
			}
			writers.Go(func() error {
				for i := range 30 {
					n := 1 + i%4
					if err := by.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: replica}); err != nil {
						return err
					}
					if err := by.Report(ctx, report(replica, vllm, 0, chain[:n]...)); err != nil {
						return err
					}
					ev := new(ranking.Evidence)
					if err := by.Match(ctx, q, ev); err != nil {
						return err
					}
					if got := blocksOf(ev)[replica]; got != n {
						return fmt.Errorf("round %d: %s holds %d blocks, want %d", i, replica, got, n)
					}
				}
				return nil
			})
		}
		require.NoError(t, writers.Wait())
	})
}

func TestChangesOfOtherPodsArrive(t *testing.T) {
	cachedEverywhere(t, func(t *testing.T, url string, shards int) {
		here, there := newPod(t, url, shards, store.CachedOptions{}), newPod(t, url, shards, store.CachedOptions{})
		q := query(vllm, "b0", "b1")
		require.NoError(t, there.Report(ctx, report("a", vllm, 0, "b0", "b1")))
		here.warm(q)
		sees := func(want map[string]int) {
			t.Helper()
			rig.Eventually(t, longEnough, fmt.Sprint(want), func() error {
				if got, _ := here.runs(q); fmt.Sprint(got) != fmt.Sprint(want) {
					return fmt.Errorf("got %v", got)
				}
				return nil
			})
		}
		sees(map[string]int{"a": 2})
		require.NoError(t, there.Report(ctx, report("b", vllm, 0, "b0")))
		sees(map[string]int{"a": 2, "b": 1})
		require.NoError(t, there.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: "a", Hash: []byte("b1")}))
		sees(map[string]int{"a": 1, "b": 1})
		require.NoError(t, there.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "a"}))
		sees(map[string]int{"b": 1})
		require.NoError(t, there.Report(ctx, &ranking.Report{Scope: scope, Replica: "b", Stats: &ranking.Stats{HitRate: 0.75}}))
		rig.Eventually(t, longEnough, "stats", func() error {
			if _, ev := here.runs(q); len(ev.Serving) != 1 || ev.Serving[0].Stats.HitRate != 0.75 {
				return fmt.Errorf("%+v", ev.Serving)
			}
			return nil
		})
		here.warm(q)
	})
}

// Nobody writes when a sidecar dies: memory must see by the clock that its lease ran out.
func TestALeaseRunsOutInMemoryWithoutALogEntry(t *testing.T) {
	p := newPod(t, urlOf(rig.Standalone(t).Addr()), 1, store.CachedOptions{})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	require.NoError(t, p.Report(ctx, report("b", vllm, 0, "b0")))
	_, err := p.RenewLease(ctx, scope, "a", time.Second)
	require.NoError(t, err)
	q := query(vllm, "b0", "b1")
	p.warm(q)
	end := func() string { return p.rdb.HGet(ctx, keys().Head(), "l").Val() }
	before := end()
	rig.Eventually(t, longEnough, "the lease to run out", func() error {
		if got, ev := p.runs(q); len(got) != 1 || got["b"] != 1 || len(ev.Serving) != 1 || ev.Walked > 0 {
			return fmt.Errorf("%v, %d serve, %d walked", got, len(ev.Serving), ev.Walked)
		}
		return nil
	})
	require.Equal(t, before, end(), "nobody wrote")
}

func TestCensusFollowsOwnWritesAtOnce(t *testing.T) {
	cachedEverywhere(t, func(t *testing.T, url string, shards int) {
		p := newPod(t, url, shards, store.CachedOptions{})
		census := func(sc ranking.Scope, sp ranking.Space) ranking.Census {
			q := query(sp, "b0")
			q.Scope = sc
			_, ev := p.runs(q)
			return ev.Census
		}
		for range 3 {
			require.Equal(t, ranking.CensusIndexEmpty, census(scope, vllm))
		}
		other := ranking.Scope{Tenant: scope.Tenant, Model: "other"}
		nobody := ranking.Scope{Tenant: "nobody", Model: "other"}
		require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0")))
		require.Equal(t, ranking.CensusKnown, census(scope, vllm))
		require.Equal(t, ranking.CensusSchemeEmpty, census(scope, ranking.Space{Scheme: "sglang"}))
		require.Equal(t, ranking.CensusModelEmpty, census(other, vllm))
		require.Equal(t, ranking.CensusTenantEmpty, census(nobody, vllm))
		require.NoError(t, p.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "a"}))
		require.Equal(t, ranking.CensusIndexEmpty, census(nobody, vllm))
		require.Equal(t, ranking.CensusIndexEmpty, census(scope, vllm))
	})
}

func TestACallerThatGivesUpDoesNotBreakASharedRead(t *testing.T) {
	srv := rig.Standalone(t)
	proxy := rig.NewProxy(t, srv.Addr())
	writer := newWorld(t, srv.Addr(), 3, store.Options{})
	writer.holds("a", vllm, 0, "b0")
	p := newPod(t, urlOf(proxy.Addr()), 1, store.CachedOptions{})
	require.NoError(t, p.rdb.Ping(ctx).Err())
	proxy.Pause()
	first, giveUp := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() { left <- p.Match(first, query(vllm, "b0"), new(ranking.Evidence)) }()
	second := make(chan error, 1)
	ev := new(ranking.Evidence)
	go func() { second <- p.Match(ctx, query(vllm, "b0"), ev) }()
	giveUp()
	require.ErrorIs(t, <-left, context.Canceled)
	proxy.Resume()
	require.NoError(t, <-second)
	require.Equal(t, map[string]int{"a": 1}, blocksOf(ev))
}
