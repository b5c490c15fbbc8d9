package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// budget is what a lookup of these tests may take, and slack what the machine may add.
const (
	budget = 100 * time.Millisecond
	slack  = 2 * time.Second
)

// prober asks all the time, with a budget each, and notes what came of it.
type prober struct {
	stop  chan struct{}
	done  sync.WaitGroup
	mu    sync.Mutex
	worst time.Duration
	// answered, degraded and failed count answers; wrong keeps the last failure that
	// was no budget that ran out.
	answered, degraded, failed int
}

func (p *pod) probe(q *ranking.Query) *prober {
	b := &prober{stop: make(chan struct{})}
	b.done.Go(func() {
		for {
			select {
			case <-b.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			within, cancel := context.WithTimeout(ctx, budget)
			ev := new(ranking.Evidence)
			began := time.Now()
			err := p.Match(within, q, ev)
			took := time.Since(began)
			cancel()
			b.mu.Lock()
			b.worst = max(b.worst, took)
			switch {
			case err != nil:
				b.failed++
			case ev.Degraded:
				b.degraded++
			default:
				b.answered++
			}
			b.mu.Unlock()
		}
	})
	return b
}

func (b *prober) end(t *testing.T) {
	rig.Eventually(t, longEnough, "answers in peace", func() error {
		if answered, _, _ := b.counts(); answered == 0 {
			return errors.New("none")
		}
		return nil
	})
	close(b.stop)
	b.done.Wait()
	t.Logf("answered %d, degraded %d, nothing known %d, slowest %v", b.answered, b.degraded, b.failed, b.worst)
	require.Less(t, b.worst, budget+slack)
}

func (b *prober) counts() (answered, degraded, failed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered, b.degraded, b.failed
}

// becomes waits until the pod answers want, fresh from memory or Redis.
func (p *pod) becomes(q *ranking.Query, want map[string]int) {
	p.t.Helper()
	began := time.Now()
	rig.Eventually(p.t, longEnough, fmt.Sprint("the answer ", want), func() error {
		within, cancel := context.WithTimeout(ctx, budget)
		defer cancel()
		ev := new(ranking.Evidence)
		if err := p.Match(within, q, ev); err != nil {
			return err
		}
		if got := blocksOf(ev); fmt.Sprint(got) != fmt.Sprint(want) || ev.Degraded {
			return fmt.Errorf("%v, degraded %v", got, ev.Degraded)
		}
		return nil
	})
	p.t.Logf("right again after %v", time.Since(began))
}

func faulty(t *testing.T, opts ...rig.Option) (*rig.Server, *pod, *ranking.Query) {
	srv := rig.Standalone(t, opts...)
	p := newPod(t, urlOf(srv.Addr()), 1, store.CachedOptions{MaxStaleness: 3 * time.Second})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	q := query(vllm, "b0", "b1", "b2")
	p.warm(q)
	return srv, p, q
}

func TestMemoryAnswersWhileRedisIsStoppedAndNotForLonger(t *testing.T) {
	t.Parallel()
	srv, p, q := faulty(t)
	b := p.probe(q)
	srv.Pause()
	began := time.Now()
	resume := sync.OnceFunc(srv.Resume)
	defer resume()
	rig.Eventually(t, longEnough, "answers say that they are from memory alone", func() error {
		if _, degraded, _ := b.counts(); degraded == 0 {
			return errors.New("none")
		}
		return nil
	})
	_, _, failed := b.counts()
	require.Zero(t, failed, "answers that memory could have given")
	// What memory has only the beginning of is answered as far as it goes.
	ev := new(ranking.Evidence)
	within, cancel := context.WithTimeout(ctx, budget)
	require.NoError(t, p.Match(within, query(vllm, "b0", "b1 of another chain"), ev))
	cancel()
	require.True(t, ev.Degraded)
	require.True(t, ev.Partial, "of the rest of the chain nothing is known")
	require.Equal(t, map[string]int{"a": 1}, blocksOf(ev))
	for what, q := range map[string]*ranking.Query{
		"a chain that was never asked for": query(vllm, "other"),
		"a space that was never asked for": query(ranking.Space{Scheme: vllm.Scheme, Adapter: "other"}, "b0"),
		"a hash that was never asked for":  {Scope: scope, Space: vllm, TTLMS: halfHour, Exact: true, Hashes: [][]byte{[]byte("other")}},
	} {
		within, cancel := context.WithTimeout(ctx, budget)
		require.NoError(t, p.Match(within, q, ev), what)
		cancel()
		require.True(t, ev.Partial, what)
	}
	within, cancel = context.WithTimeout(ctx, budget)
	require.NoError(t, p.Match(within, q, ev))
	cancel()
	require.False(t, ev.Partial, "memory covers it all")

	rig.Eventually(t, longEnough, "memory too old to be of use", func() error {
		if _, _, failed := b.counts(); failed == 0 {
			return errors.New("still answers")
		}
		return nil
	})
	require.Greater(t, time.Since(began), 2*time.Second)
	resume()
	p.becomes(q, map[string]int{"a": 2})
	p.warm(q)
	b.end(t)
}

func TestAnEmptyRedisIsNoticed(t *testing.T) {
	t.Parallel()
	t.Run("FLUSHALL", func(t *testing.T) {
		_, p, q := faulty(t)
		b := p.probe(q)
		require.NoError(t, p.rdb.FlushAll(ctx).Err())
		p.becomes(q, map[string]int{})
		require.NoError(t, p.Report(ctx, report("b", vllm, 0, "b0")))
		p.becomes(q, map[string]int{"b": 1})
		p.warm(q)
		b.end(t)
	})
	t.Run("killed and started again", func(t *testing.T) {
		srv, p, q := faulty(t)
		b := p.probe(q)
		srv.Kill()
		srv.Restart()
		p.becomes(q, map[string]int{})
		require.NoError(t, p.Report(ctx, report("b", vllm, 0, "b0")))
		p.becomes(q, map[string]int{"b": 1})
		p.warm(q)
		b.end(t)
	})
}

func TestConnectionsThatBreakCostNothing(t *testing.T) {
	t.Parallel()
	srv, p, q := faulty(t)
	other := newPod(t, urlOf(srv.Addr()), 1, store.CachedOptions{})
	b := p.probe(q)
	for range 10 {
		require.NoError(t, other.rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	}
	require.NoError(t, other.Report(ctx, report("b", vllm, 0, "b0")))
	p.becomes(q, map[string]int{"a": 2, "b": 1})
	p.warm(q)
	b.end(t)
	require.Zero(t, b.failed)
}

func TestAReloadChangesNothing(t *testing.T) {
	t.Parallel()
	_, p, q := faulty(t, rig.WithRDB(), rig.WithConfig("enable-debug-command yes"))
	b := p.probe(q)
	require.NoError(t, p.rdb.Do(ctx, "DEBUG", "RELOAD").Err())
	p.becomes(q, map[string]int{"a": 2})
	p.warm(q)
	b.end(t)
}

// A log that lost what the pod has not read yet makes it read the index again.
func TestATrimmedLogIsNoticed(t *testing.T) {
	t.Parallel()
	srv := rig.Standalone(t)
	proxy := rig.NewProxy(t, srv.Addr())
	p := newPod(t, urlOf(proxy.Addr()), 1, store.CachedOptions{MaxStaleness: time.Minute})
	there := newPod(t, urlOf(srv.Addr()), 1, store.CachedOptions{})
	require.NoError(t, there.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	q := query(vllm, "b0", "b1")
	p.warm(q)
	proxy.Down()
	require.NoError(t, there.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: "a", Hash: []byte("b1")}))
	require.NoError(t, there.Report(ctx, report("b", vllm, 0, "b0")))
	require.NoError(t, there.rdb.XTrimMaxLen(ctx, keys().Log(), 1).Err())
	proxy.Up()
	p.becomes(q, map[string]int{"a": 1, "b": 1})
	p.warm(q)
}

func TestASentinelFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	set := rig.Sentinel(t)
	p := newPod(t, set.URL(), 1, store.CachedOptions{})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	q := query(vllm, "b0", "b1")
	p.warm(q)
	rig.Eventually(t, longEnough, "replicas have it", func() error {
		return p.rdb.Do(ctx, "WAIT", 1, 1000).Err()
	})
	b := p.probe(q)
	set.Failover()
	rig.Eventually(t, longEnough, "a write", func() error { return p.Report(ctx, report("b", vllm, 0, "b0")) })
	p.becomes(q, map[string]int{"a": 2, "b": 1})
	p.warm(q)
	b.end(t)
}
