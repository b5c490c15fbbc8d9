package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// follower collects what a Follow tells.
type follower struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error

	mu    sync.Mutex
	lines []string
}

// follow returns when the tail has started.
func follow(t *testing.T, s *store.Store, f *ranking.ChangeFilter) *follower {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &follower{t: t, stop: stop, done: make(chan error, 1)}
	started := make(chan struct{})
	go func() {
		r.done <- s.Follow(ctx, f, func() { close(started) }, func(c *ranking.Change) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			words := []string{c.Tenant + "/" + c.Model, []string{"", "added", "evicted", "cleared", "updated"}[c.Kind], c.Replica}
			if c.Adapter != "" {
				words = append(words, "adapter", c.Adapter)
			}
			for _, h := range c.Hashes {
				words = append(words, string(h))
			}
			r.lines = append(r.lines, strings.Join(words, " "))
			return nil
		})
	}()
	t.Cleanup(stop)
	select {
	case <-started:
	case err := <-r.done:
		t.Fatalf("not started: %v", err)
	}
	return r
}

// hears waits for exactly these changes.
func (r *follower) hears(want ...string) {
	r.t.Helper()
	rig.Eventually(r.t, time.Minute, "changes", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.lines) < len(want) {
			return fmt.Errorf("%d of %d: %q", len(r.lines), len(want), r.lines)
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Equal(r.t, want, r.lines)
	r.lines = nil
}

func (r *follower) ends() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("still following")
		return nil
	}
}

func TestAFollowerHearsEveryChangeOfItsScopeInOrder(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("r0", vllm, 0, "before")
		r := follow(t, w.Store, &ranking.ChangeFilter{Scope: scope})
		lora := ranking.Space{Scheme: "vllm", Adapter: "lora"}
		w.holds("r1", vllm, 0, "a", "b")
		w.holds("r1", lora, 0, "a")
		w.holds("r0", vllm, 0, "c")
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: "r1", Hash: []byte("a"), Adapter: "lora"})
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: "r1", Hash: []byte("b")})
		stats := report("r1", vllm, 0)
		stats.Stats = &ranking.Stats{HitRate: 0.5}
		require.NoError(t, w.Report(ctx, stats))
		w.publish(ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "r1"})
		r.hears(
			"acme/llama added r1 a b", "acme/llama added r1 adapter lora a", "acme/llama added r0 c",
			"acme/llama evicted r1 adapter lora a", "acme/llama evicted r1 b",
			"acme/llama updated r1", "acme/llama cleared r1",
		)
		r.stop()
		require.NoError(t, r.ends(), "the end of the caller is no error")
	})
}

func TestAFollowerOfOneKindHearsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{})
	r := follow(t, w.Store, &ranking.ChangeFilter{Kinds: []ranking.ChangeKind{ranking.ChangeCleared}})
	w.holds("r1", vllm, 0, "a")
	w.publish(ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "r1"})
	r.hears("acme/llama cleared r1")
}

func TestAFollowerOfEverythingFindsNewPartitionsAndLosesNothingOfThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{Shards: 3})
	r := follow(t, w.Store, &ranking.ChangeFilter{})
	one := follow(t, w.Store, &ranking.ChangeFilter{Scope: ranking.Scope{Model: "new"}})
	for _, tenant := range []string{"t1", "t2"} {
		rep := report("r1", vllm, 0, "a")
		rep.Scope = ranking.Scope{Tenant: tenant, Model: "new"}
		require.NoError(t, w.Report(ctx, rep))
		rep.Entries[0].Hash = []byte("b")
		require.NoError(t, w.Report(ctx, rep))
		r.hears(tenant+"/new added r1 a", tenant+"/new added r1 b")
		one.hears(tenant+"/new added r1 a", tenant+"/new added r1 b")
	}
	w.holds("r1", vllm, 0, "other model")
	r.hears("acme/llama added r1 other model")
}

// A number that was given and retired before the follower looked is explained by the
// entry that retired it.
func TestAReplicaThatIsGoneAgainIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var heard []string
	err := w.Follow(ctx, &ranking.ChangeFilter{Scope: scope}, func() {
		// Before the tail reads for the first time.
		for i := range 5 {
			id := fmt.Sprint("r", i)
			w.holds(id, vllm, 0, "x")
			w.publish(ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: id})
		}
	}, func(c *ranking.Change) error {
		heard = append(heard, fmt.Sprint(c.Kind, c.Replica))
		if len(heard) == 10 {
			stop()
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"1r0", "3r0", "1r1", "3r1", "1r2", "3r2", "1r3", "3r3", "1r4", "3r4"}, heard)
}

func TestAFollowerThatTheLogDidNotWaitForIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{LogLength: 16})
	first := make(chan struct{})
	goOn := make(chan struct{})
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		var once sync.Once
		done <- w.Follow(ctx, &ranking.ChangeFilter{Scope: scope}, func() { close(started) }, func(*ranking.Change) error {
			once.Do(func() {
				close(first)
				<-goOn // a consumer that takes its time
			})
			return nil
		})
	}()
	<-started
	w.holds("r1", vllm, 0, "a")
	<-first
	for i := range 600 { // Redis trims whole nodes of a hundred entries
		w.holds("r1", vllm, 0, fmt.Sprint("h", i))
	}
	close(goOn)
	require.ErrorIs(t, <-done, ranking.ErrChangesMissed)
}

func TestAFollowerIsToldThatTheLogWasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{})
	r := follow(t, w.Store, &ranking.ChangeFilter{Scope: scope})
	w.holds("r1", vllm, 0, "a")
	r.hears("acme/llama added r1 a")
	require.NoError(t, w.rdb.FlushAll(ctx).Err())
	require.ErrorIs(t, r.ends(), ranking.ErrChangesMissed)
}

func TestAForeignKeyInTheLogsPlaceIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{})
	w.holds("r1", vllm, 0, "a")
	require.NoError(t, w.rdb.Del(ctx, keys().Log()).Err())
	require.NoError(t, w.rdb.Set(ctx, keys().Log(), "no log", 0).Err())
	r := follow(t, w.Store, &ranking.ChangeFilter{})
	other := report("r1", vllm, 0, "b")
	other.Scope = ranking.Scope{Tenant: "t", Model: "m"}
	require.NoError(t, w.Report(ctx, other))
	r.hears("t/m added r1 b")
	require.Contains(t, <-w.seen.garbage, "WRONGTYPE")
}

func TestAFollowerOutlivesAShortAbsenceOfRedis(t *testing.T) {
	t.Parallel()
	server := rig.Standalone(t)
	proxy := rig.NewProxy(t, server.Addr())
	w := newWorld(t, proxy.Addr(), 2, store.Options{})
	r := follow(t, w.Store, &ranking.ChangeFilter{Scope: scope})
	w.holds("r1", vllm, 0, "a")
	r.hears("acme/llama added r1 a")
	proxy.Cut()
	w.holds("r1", vllm, 0, "b")
	r.hears("acme/llama added r1 b")
}

func TestWhatTakeReturnsEndsTheFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{})
	enough := errors.New("enough")
	err := w.Follow(ctx, &ranking.ChangeFilter{Scope: scope}, func() { w.holds("r1", vllm, 0, "a") },
		func(*ranking.Change) error { return enough })
	require.ErrorIs(t, err, enough)
}

func TestAFollowerWorksOnACluster(t *testing.T) {
	t.Parallel()
	rdb, err := store.Dial(store.DialOptions{URL: rig.Cluster(t, 3).URL()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s, err := store.Open(ctx, store.Options{Redis: rdb, Shards: 4})
	require.NoError(t, err)
	r := follow(t, s, &ranking.ChangeFilter{})
	heard := map[string]bool{}
	for i := range 8 {
		require.NoError(t, s.Report(ctx, report(fmt.Sprint("r", i), vllm, 0, "a")))
	}
	rig.Eventually(t, time.Minute, "eight replicas", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, l := range r.lines {
			heard[l] = true
		}
		if len(heard) < 8 {
			return fmt.Errorf("%v", heard)
		}
		return nil
	})
}

func TestAFollowerGivesUpOnARedisThatStaysAway(t *testing.T) {
	t.Parallel()
	proxy := rig.NewProxy(t, rig.Standalone(t).Addr())
	w := newWorld(t, proxy.Addr(), 2, store.Options{})
	r := follow(t, w.Store, &ranking.ChangeFilter{Scope: scope})
	proxy.Down()
	require.ErrorContains(t, r.ends(), "Redis is away")
}
