package store_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/store"
)

func TestLayout(t *testing.T) {
	onEveryRedis(t, map[string]func(*testing.T, *upkeep){
		"another number of shards is refused with what to do": otherShards,
		"another version is refused":                          otherVersion,
		"a foreign key is refused and left alone":             foreignLayout,
		"of many that start at once one decides":              oneDecides,
		"a flush does not lose it for long":                   flushedLayout,
	})
}

func otherShards(t *testing.T, u *upkeep) {
	_, err := store.Open(u.ctx, store.Options{Redis: u.rdb, Shards: 4})
	require.ErrorIs(t, err, store.ErrLayout)
	for _, part := range []string{"laid out for --shards 1,", "started with --shards 4", "start it with --shards 1;", "on an empty database"} {
		require.ErrorContains(t, err, part)
	}
	found, err := u.rdb.HGetAll(u.ctx, store.LayoutKey).Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"version": "1", "shards": "1"}, found)
	require.NoError(t, u.CheckLayout(u.ctx))
}

func otherVersion(t *testing.T, u *upkeep) {
	require.NoError(t, u.rdb.HSet(u.ctx, store.LayoutKey, "version", "2", "future", "x").Err())
	err := u.CheckLayout(u.ctx)
	require.ErrorIs(t, err, store.ErrLayout)
	require.ErrorContains(t, err, "holds version 2, this component writes version 1")
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, w.Tick(u.ctx), store.ErrLayout, "a sweeper touches nothing of another layout")
}

func foreignLayout(t *testing.T, u *upkeep) {
	for _, foreign := range []map[string]any{{"a": "b"}, {"version": "one", "shards": "1"}, {"version": "1"}, {"version": "1", "shards": "zero"}} {
		require.NoError(t, u.rdb.Del(u.ctx, store.LayoutKey).Err())
		require.NoError(t, u.rdb.HSet(u.ctx, store.LayoutKey, foreign).Err())
		err := u.CheckLayout(u.ctx)
		require.ErrorIs(t, err, store.ErrLayout)
		require.ErrorContains(t, err, "another program wrote it")
		require.EqualValues(t, len(foreign), u.rdb.HLen(u.ctx, store.LayoutKey).Val())
	}
	require.NoError(t, u.rdb.Del(u.ctx, store.LayoutKey).Err())
	require.NoError(t, u.rdb.Set(u.ctx, store.LayoutKey, "mine", 0).Err())
	err := u.CheckLayout(u.ctx)
	require.ErrorIs(t, err, store.ErrLayout)
	require.ErrorContains(t, err, "delete that key, or give this component another database")
	require.Equal(t, "mine", u.rdb.Get(u.ctx, store.LayoutKey).Val())
}

func oneDecides(t *testing.T, u *upkeep) {
	require.NoError(t, u.rdb.Del(u.ctx, store.LayoutKey).Err())
	var wg sync.WaitGroup
	var opened atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			_, err := store.Open(u.ctx, store.Options{Redis: u.rdb, Shards: i + 1})
			if err == nil {
				opened.Add(1)
			} else if !errors.Is(err, store.ErrLayout) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, opened.Load())
}

func flushedLayout(t *testing.T, u *upkeep) {
	require.NoError(t, u.rdb.PExpire(u.ctx, store.LayoutKey, time.Second).Err())
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Tick(u.ctx))
	require.Greater(t, u.rdb.PTTL(u.ctx, store.LayoutKey).Val(), store.DefaultKeyTTL)
	require.NoError(t, u.rdb.Del(u.ctx, store.LayoutKey).Err())
	require.NoError(t, w.Tick(u.ctx))
	require.NoError(t, u.CheckLayout(u.ctx))
	require.EqualValues(t, 1, u.rdb.Exists(u.ctx, store.LayoutKey).Val())
}
