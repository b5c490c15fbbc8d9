package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
	"inferencecache.io/lookuptier/store"
)

// After any sequence of changes and sweeps the serving counts are a recount of the
// records, and lookups and states are those of the obvious model.
func TestAnySequenceOfChangesAgreesWithTheObviousIndex(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprintf("redis/%dshards", shards), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{Shards: shards})
			rapid.Check(t, func(t *rapid.T) { agree(t, w, shards) })
		})
	}
	// Shards are the caller's, scripts the server's: what is special to miniredis shows with one.
	t.Run("miniredis/1shards", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, miniredis.RunT(t).Addr(), 3, store.Options{Shards: 1})
		rapid.Check(t, func(t *rapid.T) { agree(t, w, 1) })
	})
}

// sweepTTL is what both sides sweep with; ages in the test keep well away from it and from the query's TTL.
const sweepTTL = time.Hour

var (
	minute   = time.Minute.Milliseconds()
	anyAge   = rapid.SampledFrom([]int64{0, 10 * minute, 40 * minute, 90 * minute})
	youngAge = rapid.SampledFrom([]int64{1, 10 * minute})
	anyID    = rapid.SampledFrom([]string{"a", "b", "c", "d"})
	anyHash  = rapid.SampledFrom([]string{"b0", "b1", "b2", "b3", "b4", "b5"})
	anySpace = rapid.SampledFrom([]ranking.Space{{Scheme: "s1"}, {Scheme: "s1", Adapter: "x"}, {Scheme: "s2"}, {Scheme: "s2", Adapter: "y"}})
	anyScope = rapid.SampledFrom([]ranking.Scope{{Tenant: "t", Model: "m"}, {Tenant: "t", Model: "n"}, {Tenant: "u", Model: "m"}})
	anyTier  = rapid.SampledFrom([]ranking.Tier{ranking.TierT1, ranking.TierT2, ranking.TierT3, ranking.TierUnknown})
)

func agree(t *rapid.T, w *world, shards int) {
	require.NoError(t, w.rdb.FlushAll(ctx).Err())
	// A flush and the next write can fall into one millisecond, and then the new log begins
	// with an id that the old one had: a store that knew the old head would take it for the new.
	s, err := store.Open(ctx, store.Options{Redis: w.rdb, Shards: shards})
	require.NoError(t, err)
	w = &world{Store: s, t: w.t, rdb: w.rdb, seen: w.seen}
	base := w.now()
	model := rankingtest.New(w.now)
	both := func(change func(index) error) {
		require.NoError(t, change(w))
		require.NoError(t, change(model))
	}
	t.Repeat(map[string]func(*rapid.T){
		"report": func(t *rapid.T) {
			r := &ranking.Report{Scope: anyScope.Draw(t, "scope"), Replica: anyID.Draw(t, "replica"), SeenMS: base - anyAge.Draw(t, "age")}
			sp := anySpace.Draw(t, "space")
			r.Scheme = sp.Scheme
			for i, h := range rapid.SliceOfN(anyHash, 1, 6).Draw(t, "hashes") {
				r.Entries = append(r.Entries, ranking.Entry{Adapter: sp.Adapter, Hash: []byte(h), Tokens: int32(16 * (i + 1)), Tier: anyTier.Draw(t, "tier")})
			}
			both(func(x index) error { return x.Report(ctx, r) })
		},
		"stats": func(t *rapid.T) {
			r := &ranking.Report{Scope: anyScope.Draw(t, "scope"), Replica: anyID.Draw(t, "replica"), SeenMS: base - youngAge.Draw(t, "age"),
				Stats: &ranking.Stats{HitRate: rapid.Float32Range(0, 1).Draw(t, "hit rate"), ClientVersion: rapid.String().Draw(t, "version")}}
			both(func(x index) error { return x.Report(ctx, r) })
		},
		"evict": func(t *rapid.T) {
			e := &ranking.Event{Kind: ranking.EventEvicted, Scope: anyScope.Draw(t, "scope"), Replica: anyID.Draw(t, "replica"),
				Hash: []byte(anyHash.Draw(t, "hash")), Adapter: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "adapter")}
			both(func(x index) error { return x.Publish(ctx, e) })
		},
		"clear": func(t *rapid.T) {
			e := &ranking.Event{Kind: ranking.EventCleared, Scope: anyScope.Draw(t, "scope"), Replica: anyID.Draw(t, "replica")}
			both(func(x index) error { return x.Publish(ctx, e) })
		},
		"alive": func(t *rapid.T) {
			e := &ranking.Event{Kind: ranking.EventAlive, Scope: anyScope.Draw(t, "scope"), Replica: anyID.Draw(t, "replica"), AtMS: base - youngAge.Draw(t, "age")}
			both(func(x index) error { return x.Publish(ctx, e) })
		},
		"sweep": func(t *rapid.T) {
			list, err := w.Partitions(ctx)
			require.NoError(t, err)
			for _, p := range list {
				_, err := w.SweepNow(ctx, p, sweepTTL)
				require.NoError(t, err)
			}
			model.Sweep(sweepTTL.Milliseconds())
		},
		"sweeper at work": func(t *rapid.T) { // reports then look for their own records only
			list, err := w.Partitions(ctx)
			require.NoError(t, err)
			for _, p := range list {
				require.NoError(t, w.rdb.HSet(ctx, p.Keys().Head(), "s", w.now()).Err())
			}
		},
		"": func(t *rapid.T) {
			s := anyScope.Draw(t, "asked scope")
			for shard := range shards {
				requireRecount(t, w.rdb, store.KeysOf(s, shard))
			}
			q := &ranking.Query{Scope: s, Space: anySpace.Draw(t, "asked space"), TTLMS: halfHour, Exact: rapid.Bool().Draw(t, "exact")}
			for _, h := range rapid.SliceOfN(anyHash, 1, 6).Draw(t, "chain") {
				q.Hashes = append(q.Hashes, []byte(h))
				q.Tokens = append(q.Tokens, 16)
			}
			if q.Exact {
				q.Hashes, q.Tokens = q.Hashes[:1], nil
			}
			require.Empty(t, cmp.Diff(answer(t, model, q), answer(t, w, q)))
			want, err := model.State(ctx, s)
			require.NoError(t, err)
			got, err := w.State(ctx, s)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(stateOf(want), stateOf(got)))
		},
	})
}

// index is what the store and the model have in common.
type index interface {
	Match(c context.Context, q *ranking.Query, ev *ranking.Evidence) error
	Report(c context.Context, rs ...*ranking.Report) error
	Publish(c context.Context, e *ranking.Event) error
}

// found is Evidence without clocks and orders that mean nothing.
type found struct {
	Serving []ranking.Replica
	Census  ranking.Census
	Runs    map[string]ranking.Run
}

func answer(t *rapid.T, x index, q *ranking.Query) found {
	ev := new(ranking.Evidence)
	require.NoError(t, x.Match(ctx, q, ev))
	f := found{Serving: unaged(ev.Serving), Census: ev.Census, Runs: map[string]ranking.Run{}}
	for _, r := range ev.Runs {
		id := ev.Serving[r.Replica].ID
		r.Replica = 0
		f.Runs[id] = r
	}
	return f
}

// unaged drops alive times: a report of holds is a sign of life to the store, and the model keeps none without stats.
func unaged(list []ranking.Replica) []ranking.Replica {
	out := append([]ranking.Replica{}, slices.Clone(list)...)
	for i := range out {
		out[i].AliveAtMS = 0
	}
	return out
}

func stateOf(st ranking.State) ranking.State {
	st.Replicas = unaged(st.Replicas)
	return st
}
