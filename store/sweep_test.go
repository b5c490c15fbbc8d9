package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

const ttl = 30 * time.Minute

func TestSweeps(t *testing.T) {
	onEveryRedis(t, map[string]func(*testing.T, *upkeep){
		"expired holds go and fresh ones stay":                      expiredGo,
		"records of retired numbers go and the mark is taken off":   retiredGo,
		"a clear during a pass leaves the partition marked":         clearDuringPass,
		"the last hold takes space, count and catalog entry":        lastHoldGoes,
		"a replica is forgotten when holds, life and lease are out": replicaForgotten,
		"a lapsed lease retires its replica":                        lapsedLease,
		"keys outlive the policy of their tenant":                   keysOutlive,
		"scheme indexes are free again but never shared":            schemeIndexes,
		"what Redis lost is put right":                              lostKeys,
		"unreadable values go":                                      unreadable,
		"a foreign key is named and nothing is changed":             foreignKeys,
		"a foreign space costs no other its sweep or count":         oneForeignSpace,
		"a log that nobody can need any more is cut":                oldLog,
		"a large space is swept in slices":                          largeSpace,
		"sweeps amid reports leave the counts true":                 amidReports,
		"two sweepers share the work":                               twoSweepers,
		"a dead sweeper's lock runs out":                            deadSweeper,
		"a running sweeper keeps to its interval":                   runningSweeper,
	})
}

func expiredGo(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", time.Hour, hashes(0, 10))
	u.holds(here, "b", "v", time.Minute, hashes(5, 10))
	u.holds(here, "a", "w", 29*time.Minute, hashes(0, 3))
	r := u.sweep(here, ttl)
	require.EqualValues(t, 10, r.Expired)
	require.EqualValues(t, 0, r.Retired)
	require.EqualValues(t, 13, r.Blocks)
	require.False(t, r.Empty)
	c := u.look(here)
	require.Len(t, c.Counts, 2, "a serves v no more, and w still")
	require.EqualValues(t, 10, u.obs.of("acme/expired"))

	var ev ranking.Evidence
	q := ranking.Query{Scope: here, Space: ranking.Space{Scheme: "v"}, Hashes: hashes(5, 10), Tokens: make([]int32, 10), TTLMS: ttl.Milliseconds()}
	for i := range q.Tokens {
		q.Tokens[i] = 16
	}
	require.NoError(t, u.Match(u.ctx, &q, &ev))
	require.Len(t, ev.Serving, 1, "readers learn that the head changed")
	require.Equal(t, "b", ev.Serving[0].ID)
	require.Equal(t, 10, ev.Runs[0].Blocks)
}

func retiredGo(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 20))
	u.holds(here, "b", "v", 0, hashes(10, 20))
	u.event(ranking.EventCleared, here, "a", nil)
	require.Equal(t, "1", u.rdb.HGet(u.ctx, part(here).Keys().Head(), "d").Val())
	r := u.sweep(here, ttl)
	require.EqualValues(t, 20, r.Retired)
	require.EqualValues(t, 0, r.Expired)
	require.EqualValues(t, 20, r.Blocks)
	require.Equal(t, redis.Nil, u.rdb.HGet(u.ctx, part(here).Keys().Head(), "d").Err())
	require.Zero(t, u.look(here).Dead)
	require.EqualValues(t, 20, u.obs.of("acme/retired"))
}

func clearDuringPass(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 2000))
	u.holds(here, "b", "v", 0, hashes(0, 2000))
	u.event(ranking.EventCleared, here, "a", nil)
	// The pass is stopped before its end by the clear of b: a hook on the client
	// publishes it right before the last script call.
	before := &beforeCall{match: func(keys int) bool { return keys == 7 }}
	u.rdb.AddHook(before)
	cleared := false
	before.do = func() {
		if !cleared {
			cleared = true
			u.event(ranking.EventCleared, here, "b", nil)
		}
	}
	_, err := u.SweepNow(u.ctx, part(here), ttl)
	require.NoError(t, err)
	require.True(t, cleared)
	require.Equal(t, "1", u.rdb.HGet(u.ctx, part(here).Keys().Head(), "d").Val(), "b was cleared after the pass began")
	u.sweep(here, ttl)
	require.Equal(t, redis.Nil, u.rdb.HGet(u.ctx, part(here).Keys().Head(), "d").Err())
	require.Zero(t, u.look(here).Dead)
}

// beforeCall calls do before each script call whose number of KEYS matches.
type beforeCall struct {
	match func(keys int) bool
	do    func()
}

func (b *beforeCall) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (b *beforeCall) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b *beforeCall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			args := c.Args()
			if len(args) > 2 && (c.Name() == "evalsha" || c.Name() == "eval") && b.match(args[2].(int)) {
				b.do()
			}
		}
		return next(ctx, cmds)
	}
}

func lastHoldGoes(t *testing.T, u *upkeep) {
	other := ranking.Scope{Tenant: "acme", Model: "mistral"}
	u.holds(here, "a", "v", time.Hour, hashes(0, 3))
	u.holds(other, "a", "v", 0, hashes(0, 3))
	u.catalogIsTrue(here)
	r := u.sweep(here, ttl)
	require.True(t, r.Empty)
	require.Zero(t, r.Blocks)
	k := part(here).Keys()
	left, err := u.rdb.Exists(u.ctx, k.Serving(), k.Spaces(), k.Replicas(), k.Lock(), k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))).Result()
	require.NoError(t, err)
	require.Zero(t, left, "nothing but the head and the log is left")
	u.catalogIsTrue(here)
	u.catalogIsTrue(other)
	list, err := u.Partitions(u.ctx)
	require.NoError(t, err)
	require.Equal(t, []store.Partition{part(other)}, list)
	require.Equal(t, ranking.CensusModelEmpty, u.census(here, "v"))
	u.sweep(other, 0)
	require.Equal(t, ranking.CensusSchemeEmpty, u.census(other, "w"))
	u.event(ranking.EventCleared, other, "a", nil)
	require.Equal(t, ranking.CensusIndexEmpty, u.census(other, "v"))
	u.sweep(other, ttl)
	u.holds(here, "a", "v", 0, hashes(0, 1))
	u.catalogIsTrue(here)
	require.Equal(t, ranking.CensusModelEmpty, u.census(other, "v"))
	require.Equal(t, ranking.CensusTenantEmpty, u.census(ranking.Scope{Tenant: "x", Model: "llama"}, "v"))
}

func replicaForgotten(t *testing.T, u *upkeep) {
	old := time.Now().Add(-time.Hour).UnixMilli()
	stats := func(id string, at int64) {
		require.NoError(t, u.Report(u.ctx, &ranking.Report{Scope: here, Replica: id, SeenMS: at, Stats: &ranking.Stats{HitRate: .5}}))
	}
	stats("stale", old)
	stats("alive", old)
	u.event(ranking.EventAlive, here, "alive", nil)
	stats("fresh", 0)
	stats("holding", old)
	u.holds(here, "holding", "v", 20*time.Minute, hashes(0, 1))
	stats("leased", old)
	_, err := u.RenewLease(u.ctx, here, "leased", time.Hour)
	require.NoError(t, err)
	r := u.sweep(here, ttl)
	require.EqualValues(t, 1, r.Forgotten)
	rows, err := u.rdb.HKeys(u.ctx, part(here).Keys().Replicas()).Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"alive", "fresh", "holding", "leased"}, rows)

	lone := ranking.Scope{Tenant: "lone", Model: "stats"}
	require.NoError(t, u.Report(u.ctx, &ranking.Report{Scope: lone, Replica: "r", SeenMS: old, Stats: &ranking.Stats{}}))
	list, err := u.Partitions(u.ctx)
	require.NoError(t, err)
	require.Contains(t, list, part(lone), "a sweeper must find stats that stand alone")
	u.catalogIsTrue(lone)
	u.sweep(lone, ttl)
	st, err := u.State(u.ctx, lone)
	require.NoError(t, err)
	require.Empty(t, st.Replicas)
	list, err = u.Partitions(u.ctx)
	require.NoError(t, err)
	require.NotContains(t, list, part(lone))
}

func lapsedLease(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 5))
	u.holds(here, "b", "v", 0, hashes(3, 5))
	_, err := u.RenewLease(u.ctx, here, "a", time.Millisecond)
	require.NoError(t, err)
	time.Sleep(5 * time.Millisecond)
	r := u.sweep(here, ttl)
	require.EqualValues(t, 1, r.Lapsed)
	require.EqualValues(t, 5, r.Retired)
	require.EqualValues(t, 5, r.Blocks)
	got, err := u.RenewLease(u.ctx, here, "a", time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Writes, "its sidecar sees that all was forgotten")
	require.EqualValues(t, 0, u.sweep(here, ttl).Lapsed)

	// A pass of the sweeper leaves it time to come back.
	_, err = u.RenewLease(u.ctx, here, "b", time.Millisecond)
	require.NoError(t, err)
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{Grace: time.Hour})
	require.NoError(t, err)
	require.NoError(t, w.Tick(u.ctx))
	rec, err := u.RenewLease(u.ctx, here, "b", time.Hour)
	require.NoError(t, err)
	require.Greater(t, rec.Writes, int64(1))
	require.Len(t, u.look(here).Counts, 1)
}

func keysOutlive(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 5))
	k := part(here).Keys()
	keys := []string{k.Head(), k.Replicas(), k.Serving(), k.Spaces(), k.Log(), k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))}
	week := 7 * 24 * time.Hour
	u.sweep(here, week)
	for _, key := range keys {
		left, err := u.rdb.PTTL(u.ctx, key).Result()
		require.NoError(t, err)
		require.Greater(t, left, 2*week-time.Minute, key)
	}
	u.holds(here, "a", "v", 0, hashes(0, 5))
	u.sweep(here, ttl)
	for _, key := range keys {
		left, err := u.rdb.PTTL(u.ctx, key).Result()
		require.NoError(t, err)
		require.Greater(t, left, week, "%s: a life is never cut", key)
	}
	for _, key := range u.everyKey() {
		left, err := u.rdb.PTTL(u.ctx, key).Result()
		require.NoError(t, err)
		require.Positive(t, left, "%q has no TTL", key)
	}
}

// everyKey lists all keys, on every node.
func (u *upkeep) everyKey() (all []string) {
	scan := func(ctx context.Context, c redis.Cmdable) error {
		keys, err := c.Keys(ctx, "*").Result()
		all = append(all, keys...)
		return err
	}
	if cluster, ok := u.rdb.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		require.NoError(u.t, cluster.ForEachMaster(u.ctx, func(ctx context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return scan(ctx, c)
		}))
		return all
	}
	require.NoError(u.t, scan(u.ctx, u.rdb))
	return all
}

func schemeIndexes(t *testing.T, u *upkeep) {
	index := func(scheme string) string {
		return u.rdb.HGet(u.ctx, part(here).Keys().Spaces(), store.SpaceField(ranking.Space{Scheme: scheme})).Val()
	}
	u.holds(here, "a", "v0", 0, hashes(0, 2))
	u.holds(here, "a", "v1", time.Hour, hashes(0, 2))
	u.holds(here, "a", "v2", 0, hashes(0, 2))
	require.Equal(t, []string{"0", "1", "2"}, []string{index("v0"), index("v1"), index("v2")})
	u.sweep(here, ttl)
	u.holds(here, "a", "v3", 0, hashes(0, 2))
	require.Equal(t, []string{"0", "", "2", "3"}, []string{index("v0"), index("v1"), index("v2"), index("v3")})
	u.countsAreTrue(here)
	for range 5 {
		u.holds(here, "a", "flapping", time.Hour, hashes(0, 2))
		require.Equal(t, "4", index("flapping"), "indexes do not run out")
		u.sweep(here, ttl)
	}
	u.event(ranking.EventCleared, here, "a", nil)
	u.sweep(here, ttl)
	u.holds(here, "a", "v9", 0, hashes(0, 2))
	require.Equal(t, "0", index("v9"))
	u.countsAreTrue(here)
}

func lostKeys(t *testing.T, u *upkeep) {
	k := part(here).Keys()
	u.holds(here, "a", "v", 0, hashes(0, 5))
	u.holds(here, "a", "w", 0, hashes(0, 5))
	u.holds(here, "b", "w", 0, hashes(0, 5))
	require.NoError(t, u.rdb.Del(u.ctx, k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))).Err())
	require.EqualValues(t, 1, u.sweep(here, ttl).Repaired)

	require.NoError(t, u.rdb.HDel(u.ctx, k.Replicas(), "b").Err())
	require.EqualValues(t, 1, u.sweep(here, ttl).Repaired, "a number without a name cannot serve")
	require.EqualValues(t, 5, u.sweep(here, ttl).Retired)

	require.NoError(t, u.rdb.Del(u.ctx, k.Replicas(), k.Head()).Err())
	r := u.sweep(here, ttl)
	require.True(t, r.Empty)
	r = u.sweep(here, ttl)
	require.EqualValues(t, 5, r.Retired)
	u.catalogIsTrue(here)
}

func unreadable(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 5))
	k := part(here).Keys()
	blocks := k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))
	require.NoError(t, u.rdb.HSet(u.ctx, blocks, "odd", "thirteen byte", "empty", "").Err())
	require.NoError(t, u.rdb.HSet(u.ctx, k.Replicas(), "broken", "short").Err())
	r := u.sweep(here, ttl)
	require.EqualValues(t, 2, r.Garbage)
	require.EqualValues(t, 1, r.Forgotten)
	require.EqualValues(t, 5, r.Blocks)
	require.NotEmpty(t, u.obs.garbage)
}

func foreignKeys(t *testing.T, u *upkeep) {
	k := part(here).Keys()
	for _, key := range []string{k.Head(), k.Replicas(), k.Serving(), k.Spaces(), k.Log(), k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))} {
		u.holds(here, "a", "v", time.Hour, hashes(0, 5))
		require.NoError(t, u.rdb.Del(u.ctx, key).Err())
		require.NoError(t, u.rdb.Set(u.ctx, key, "foreign", time.Minute).Err())
		u.obs.garbage = nil
		r, err := u.SweepNow(u.ctx, part(here), ttl)
		if strings.Contains(key, ":b:") {
			require.NoError(t, err, "the other spaces are swept")
			require.EqualValues(t, 1, r.Garbage)
		} else {
			require.ErrorContains(t, err, key)
		}
		require.Contains(t, strings.Join(u.obs.garbage, "\n"), key)
		require.Equal(t, "foreign", u.rdb.Get(u.ctx, key).Val())
		require.NoError(t, u.rdb.Del(u.ctx, k.Head(), k.Replicas(), k.Serving(), k.Spaces(), k.Log(), k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))).Err())
	}
	require.NoError(t, u.rdb.HSet(u.ctx, store.CatalogPartitionsKey+"x", "a", "b").Err())
	require.NoError(t, u.rdb.Del(u.ctx, store.CatalogPartitionsKey).Err())
	require.NoError(t, u.rdb.ZAdd(u.ctx, store.CatalogPartitionsKey, redis.Z{Score: 1e15, Member: "garbage"}).Err())
	list, err := u.Partitions(u.ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	require.NotEmpty(t, u.obs.garbage)
}

// One key that another program wrote costs its own space, and no other's sweep or count.
func oneForeignSpace(t *testing.T, u *upkeep) {
	there := ranking.Scope{Tenant: here.Tenant, Model: here.Model + "-other"}
	u.holds(here, "a", "v", time.Hour, hashes(0, 5))
	u.holds(here, "a", "w", 0, hashes(0, 3))
	u.holds(here, "b", "w", time.Hour, hashes(0, 4))
	u.holds(there, "a", "v", 0, hashes(0, 2))
	bad := part(here).Keys().Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))
	require.NoError(t, u.rdb.Del(u.ctx, bad).Err())
	require.NoError(t, u.rdb.Set(u.ctx, bad, "foreign", time.Hour).Err())

	w, err := store.NewSweeper(u.Store, store.SweeperOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Tick(u.ctx))
	require.Contains(t, strings.Join(u.obs.garbage, "\n"), bad)
	require.EqualValues(t, 4, u.obs.of(here.Tenant+"/"+store.EvictedExpired), "those of the other space")
	require.Equal(t, map[string]int64{here.Model: 3, there.Model: 2}, must(u.Entries(u.ctx)))
	require.EqualValues(t, 3, must(u.State(u.ctx, here)).Prefixes)

	// A key without which nothing of its partition is known stops no other partition.
	spaces := part(here).Keys().Spaces()
	require.NoError(t, u.rdb.Del(u.ctx, spaces).Err())
	require.NoError(t, u.rdb.Set(u.ctx, spaces, "foreign", time.Hour).Err())
	require.Equal(t, map[string]int64{here.Model: 0, there.Model: 2}, must(u.Entries(u.ctx)))
	require.Contains(t, strings.Join(u.obs.garbage, "\n"), spaces)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func oldLog(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 5))
	k := part(here).Keys()
	last := u.rdb.HGet(u.ctx, k.Head(), "l").Val()
	// A stream takes no past entry after a present one: it is built again from an old one.
	require.NoError(t, u.rdb.Del(u.ctx, k.Log()).Err())
	require.NoError(t, u.rdb.XAdd(u.ctx, &redis.XAddArgs{Stream: k.Log(), ID: "1000-0", Values: []string{store.LogField, "x"}}).Err())
	require.NoError(t, u.rdb.XAdd(u.ctx, &redis.XAddArgs{Stream: k.Log(), ID: last, Values: []string{store.LogField, "y"}}).Err())
	u.sweep(here, ttl)
	entries, err := u.rdb.XRange(u.ctx, k.Log(), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, last, entries[0].ID)
}

func largeSpace(t *testing.T, u *upkeep) {
	for i := range 4 {
		u.holds(here, "old", "v", time.Hour, hashes(i*1500, 1500))
		u.holds(here, "new", "v", 0, hashes(i*1500, 750))
	}
	require.Len(t, u.look(here).Counts, 2)
	r := u.sweep(here, ttl)
	require.EqualValues(t, 6000, r.Expired)
	require.EqualValues(t, 3000, r.Blocks)
	require.Len(t, u.look(here).Counts, 1)
}

func amidReports(t *testing.T, u *upkeep) {
	ctx, cancel := context.WithCancel(u.ctx)
	var sweeps sync.WaitGroup
	for range 2 {
		sweeps.Go(func() {
			for ctx.Err() == nil {
				if _, err := u.SweepNow(u.ctx, part(here), ttl); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(w)))
			for range 60 {
				id := fmt.Sprintf("r%d", rng.IntN(4))
				var err error
				switch rng.IntN(8) {
				case 0:
					err = u.Publish(u.ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: here, Replica: id})
				case 1:
					err = u.Publish(u.ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: here, Replica: id, Hash: hashes(rng.IntN(900), 1)[0]})
				default:
					r := ranking.Report{Scope: here, Replica: id, Scheme: []string{"v", "w"}[rng.IntN(2)]}
					if rng.IntN(2) == 0 {
						r.SeenMS = time.Now().Add(-time.Hour).UnixMilli()
					}
					for _, h := range hashes(rng.IntN(900), 1+rng.IntN(200)) {
						r.Entries = append(r.Entries, ranking.Entry{Hash: h, Tokens: 1, Tier: ranking.TierT1, Adapter: []string{"", "lora"}[rng.IntN(2)]})
					}
					err = u.Report(u.ctx, &r)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	cancel()
	sweeps.Wait()
	u.countsAreTrue(here)
	u.catalogIsTrue(here)
	u.sweep(here, ttl)
	require.Zero(t, u.look(here).Dead)
	u.catalogIsTrue(here)
}

func twoSweepers(t *testing.T, u *upkeep) {
	const scopes = 12
	for i := range scopes {
		u.holds(ranking.Scope{Tenant: "t", Model: fmt.Sprint(i)}, "a", "v", time.Hour, hashes(0, 1200))
	}
	var wg sync.WaitGroup
	for range 2 {
		w, err := store.NewSweeper(u.Store, store.SweeperOptions{Workers: 3, Share: 1})
		require.NoError(t, err)
		wg.Go(func() {
			if err := w.Tick(u.ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, scopes*1200, u.obs.of("t/expired"), "each hold was dropped and counted once")
	u.obs.mu.Lock()
	swept := u.obs.swept
	u.obs.mu.Unlock()
	require.Equal(t, scopes, swept, "each partition was passed once")
	list, err := u.Partitions(u.ctx)
	require.NoError(t, err)
	require.Empty(t, list, "nothing is left to know")
}

func deadSweeper(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", time.Hour, hashes(0, 5))
	lock := part(here).Keys().Lock()
	require.NoError(t, u.rdb.Set(u.ctx, lock, "somebody", 700*time.Millisecond).Err())
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{Interval: 100 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, w.Tick(u.ctx))
	require.Len(t, u.countsAreTrue(here).Counts, 1, "somebody else is at it")
	require.Equal(t, "somebody", u.rdb.Get(u.ctx, lock).Val())
	eventually(t, func() bool {
		require.NoError(t, w.Tick(u.ctx))
		return len(u.look(here).Counts) == 0
	})
	require.Zero(t, u.rdb.Exists(u.ctx, lock).Val(), "the lock is given back")
}

func runningSweeper(t *testing.T, u *upkeep) {
	short := 2 * time.Second
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{
		Interval: 500 * time.Millisecond, EvictionTTL: func(tenant string) time.Duration {
			if tenant == "acme" {
				return short
			}
			return time.Hour
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(u.ctx)
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	other := ranking.Scope{Tenant: "other", Model: "llama"}
	u.holds(here, "a", "v", 0, hashes(0, 5))
	u.holds(other, "a", "v", 0, hashes(0, 7))
	eventually(t, func() bool {
		u.obs.mu.Lock()
		defer u.obs.mu.Unlock()
		return u.obs.entries["llama"] == 12
	})
	eventually(t, func() bool { return len(u.look(here).Counts) == 0 })
	eventually(t, func() bool {
		u.obs.mu.Lock()
		defer u.obs.mu.Unlock()
		return u.obs.entries["llama"] == 7 && u.obs.behind == 0
	})
	require.Len(t, u.look(other).Counts, 1)
	cancel()
	<-done
	require.EqualValues(t, 5, u.obs.of("acme/expired"))
	u.sweep(here, ttl)
	u.catalogIsTrue(here)
	u.catalogIsTrue(other)
}

func TestSweeperOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, o := range []store.SweeperOptions{{Interval: time.Millisecond}, {Share: 2}, {Share: -1}, {Slice: -1}, {Workers: -1}, {Grace: -1}} {
		_, err := store.NewSweeper(nil, o)
		require.ErrorContains(t, err, "sweeper:")
	}
}
