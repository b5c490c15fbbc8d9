package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestARedisKilledInTheMiddleOfSweepsComesBackWithTrueCounts(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t, rig.WithAOF())
	u := newUpkeep(t, s.URL(), store.Options{})
	for i := range 8 {
		u.holds(here, "old", "v", time.Hour, hashes(i*1000, 1000))
		u.holds(here, "gone", "v", 0, hashes(i*1000, 500))
		u.holds(here, "new", "v", 0, hashes(i*1000+250, 500))
	}
	u.event(ranking.EventCleared, here, "gone", nil)
	before := u.look(here)
	require.Len(t, before.Counts, 2)

	stop := startSweepers(t, u, 3, 10)
	// Somewhere in the middle: some have gone, and not all.
	eventually(t, func() bool { return u.look(here).Dead < before.Dead })
	s.Kill()
	stop()
	s.Restart()
	eventually(t, func() bool { return u.rdb.Ping(u.ctx).Err() == nil })
	u.countsAreTrue(here)

	stop = startSweepers(t, u, 2, 500) // they go on once the lock has run out
	eventually(t, func() bool { c := u.look(here); return c.Dead == 0 && len(c.Counts) == 1 })
	stop()
	u.countsAreTrue(here)
	u.sweep(here, ttl)
	u.catalogIsTrue(here)
}

// startSweepers runs n sweepers until the returned function is called.
func startSweepers(t *testing.T, u *upkeep, n, slice int) (stop func()) {
	ctx, cancel := context.WithCancel(u.ctx)
	var running sync.WaitGroup
	for range n {
		w, err := store.NewSweeper(u.Store, store.SweeperOptions{Interval: 100 * time.Millisecond, Slice: slice, Share: 1})
		require.NoError(t, err)
		running.Go(func() { w.Run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func TestASweeperWithoutRedisWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t)
	p := rig.NewProxy(t, s.Addr())
	u := newUpkeep(t, "redis://"+p.Addr(), store.Options{})
	direct := newUpkeep(t, s.URL(), store.Options{})
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{Interval: 100 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(u.ctx)
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	p.Down()
	eventually(t, func() bool { return w.Tick(u.ctx) != nil })
	direct.holds(here, "a", "v", time.Hour, hashes(0, 5))
	p.Up()
	eventually(t, func() bool { return len(direct.look(here).Counts) == 0 })
	cancel()
	<-done
	direct.sweep(here, ttl) // the sweeper may have been stopped in the middle of a pass
	direct.catalogIsTrue(here)
}

func TestASweepLogsWhatFollowersMustKnow(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t)
	u := newUpkeep(t, s.URL(), store.Options{})
	u.holds(here, "a", "v", time.Hour, hashes(0, 3))
	u.holds(here, "b", "v", 0, hashes(0, 3))
	_, err := u.RenewLease(u.ctx, here, "c", time.Millisecond)
	require.NoError(t, err)
	time.Sleep(5 * time.Millisecond)
	k := part(here).Keys()
	from := u.rdb.HGet(u.ctx, k.Head(), "l").Val()
	u.sweep(here, ttl)
	entries, err := u.rdb.XRange(u.ctx, k.Log(), "("+from, "+").Result()
	require.NoError(t, err)
	var ops []store.LogOp
	for _, x := range entries {
		e, err := store.DecodeLog([]byte(x.Values[store.LogField].(string)))
		require.NoError(t, err)
		require.Equal(t, from, e.Prev, "a follower sees no gap")
		require.True(t, e.HeadChanged)
		from = x.ID
		ops = append(ops, e.Op)
	}
	require.Equal(t, []store.LogOp{store.OpClear, store.OpSweep}, ops[:2])
	head, err := u.rdb.HMGet(u.ctx, k.Head(), "v", "l").Result()
	require.NoError(t, err)
	require.Equal(t, []any{from, from}, head)

	// Nothing changed for readers: nothing is said.
	u.holds(here, "b", "v", time.Hour, hashes(0, 1))
	last := u.rdb.HGet(u.ctx, k.Head(), "l").Val()
	require.EqualValues(t, 1, u.sweep(here, ttl).Expired)
	require.Equal(t, last, u.rdb.HGet(u.ctx, k.Head(), "l").Val())
	require.Equal(t, redis.Nil, u.rdb.Get(u.ctx, k.Lock()).Err())
}
