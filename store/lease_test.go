package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
)

const patience = 30 * time.Second

func TestAReplicaWhoseLeaseRanOutServesNothingUntilItIsRenewed(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("leased", vllm, 0, "b0")
		w.holds("free", vllm, 0, "b0")
		_, err := w.RenewLease(ctx, scope, "leased", time.Hour)
		require.NoError(t, err)
		require.Equal(t, []string{"free", "leased"}, w.serving("vllm"))
		_, err = w.RenewLease(ctx, scope, "leased", 0)
		require.NoError(t, err)
		got, ev := w.match(vllm, "b0")
		require.Equal(t, map[string]int{"free": 1}, got)
		require.Len(t, ev.Serving, 1)
		w.holds("leased", vllm, 0, "b0")
		require.Equal(t, []string{"free"}, w.serving("vllm"), "a report renews no lease")
		_, err = w.RenewLease(ctx, scope, "leased", time.Hour)
		require.NoError(t, err)
		got, _ = w.match(vllm, "b0")
		require.Equal(t, map[string]int{"free": 1, "leased": 1}, got)
		w.recount()
	})
}

// Nobody writes when a lease runs out, so a head that was read before must know by itself.
func TestALeaseRunsOutWithoutAWrite(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("leased", vllm, 0, "b0")
		_, err := w.RenewLease(ctx, scope, "leased", 300*time.Millisecond)
		require.NoError(t, err)
		w.match(vllm, "b0")
		rig.Eventually(t, patience, "lease", func() error {
			if len(w.serving("vllm")) == 0 {
				return nil
			}
			return errStill
		})
	})
}

func TestRetireEndsALeaseAndTheNextReportNeedsNone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first, err := w.RenewLease(ctx, scope, "a", 0)
		require.NoError(t, err)
		w.holds("a", vllm, 0, "b0")
		require.NoError(t, w.Retire(ctx, scope, "a"))
		w.holds("a", vllm, 0, "b1")
		got, _ := w.match(vllm, "b1")
		require.Equal(t, map[string]int{"a": 1}, got)
		second, err := w.RenewLease(ctx, scope, "a", time.Hour)
		require.NoError(t, err)
		require.Greater(t, second.Number, first.Number)
		require.EqualValues(t, 2, second.Writes)
	})
}

func TestReceiptsShowThatRedisLostWrites(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		b := w.Batch(scope, "a")
		b.Report(vllm, 0, report("a", vllm, 0, "b0", "b1").Entries)
		b.Evict(vllm, [][]byte{[]byte("b1")})
		b.Stats(&ranking.Stats{Pressure: 0.5}, 0)
		b.Lease(time.Minute)
		require.Equal(t, 4, b.Calls())
		first, err := b.Send(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 4, first.Writes)
		require.NotZero(t, first.Number)
		require.NoError(t, w.rdb.FlushAll(ctx).Err())
		second, err := w.RenewLease(ctx, scope, "a", time.Minute)
		require.NoError(t, err)
		require.EqualValues(t, 1, second.Writes, "an empty Redis starts to count anew")
		w.recount()
	})
}

func TestStatsAreReplacedAndOutliveHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		now := w.now()
		stats := ranking.Stats{MemoryBytes: 1 << 40, HitRate: 0.75, Pressure: 0.5, ClientVersion: "v1.2\x00é", T2HitTokens: 7, T2QueryTokens: 9}
		require.NoError(t, w.Report(ctx, &ranking.Report{Scope: scope, Replica: "a", SeenMS: now - 5000, Stats: &stats}))
		w.publish(ranking.Event{Kind: ranking.EventAlive, Replica: "a", AtMS: now - 1000})
		w.publish(ranking.Event{Kind: ranking.EventAlive, Replica: "a", AtMS: now - 3000})
		w.publish(ranking.Event{Kind: ranking.EventAlive, Replica: "unknown"})
		w.holds("bare", vllm, now-4000, "b0")
		w.publish(ranking.Event{Kind: ranking.EventAlive, Replica: "bare", AtMS: now - 1000})
		st, err := w.State(ctx, scope)
		require.NoError(t, err)
		require.Equal(t, []ranking.Replica{{ID: "a", Stats: stats, StatsAtMS: now - 5000, AliveAtMS: now - 1000}}, st.Replicas)
		_, ev := w.match(vllm, "b0")
		require.Equal(t, []ranking.Replica{{ID: "bare", AliveAtMS: now - 4000}}, ev.Serving)
		w.holds("a", vllm, 0, "b0")
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b0")})
		st, err = w.State(ctx, scope)
		require.NoError(t, err)
		require.Equal(t, stats, st.Replicas[0].Stats)
		require.Equal(t, now-5000, st.Replicas[0].StatsAtMS)
	})
}

func TestStateCountsDistinctPrefixesWithoutTheDead(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("a", vllm, 0, "b0", "b1", "b2")
		w.holds("b", vllm, 0, "b2", "b3")
		w.holds("b", ranking.Space{Scheme: "vllm", Adapter: "x"}, 0, "b0")
		st, err := w.State(ctx, scope)
		require.NoError(t, err)
		require.EqualValues(t, 5, st.Prefixes)
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "a"})
		st, err = w.State(ctx, scope)
		require.NoError(t, err)
		require.EqualValues(t, 3, st.Prefixes)
		_, err = w.RenewLease(ctx, scope, "b", 0)
		require.NoError(t, err)
		st, err = w.State(ctx, scope)
		require.NoError(t, err)
		require.EqualValues(t, 3, st.Prefixes, "a lapsed replica may come back to what it held")
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "a"}) // unknown by now
		w.holds("c", vllm, 0, "b9")
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "c"})
		_, err = w.State(ctx, scope) // sweeps what c left, and that alone
		require.NoError(t, err)
		_, err = w.RenewLease(ctx, scope, "b", time.Minute)
		require.NoError(t, err)
		_, ev := w.match(vllm, "b2")
		require.Equal(t, []string{"b"}, []string{ev.Serving[0].ID})
		require.Len(t, ev.Runs, 1)
		w.recount()
	})
}

func TestCensusTellsWhereTheIndexEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		census := func(tenant, model, scheme string) ranking.Census {
			q, ev := query(ranking.Space{Scheme: scheme}, "b9"), new(ranking.Evidence)
			q.Scope = ranking.Scope{Tenant: tenant, Model: model}
			require.NoError(t, w.Match(ctx, q, ev))
			return ev.Census
		}
		require.Equal(t, ranking.CensusIndexEmpty, census("acme", "llama", "vllm"))
		w.holds("a", vllm, 0, "b0")
		require.Equal(t, ranking.CensusKnown, census("acme", "llama", "vllm"))
		require.Equal(t, ranking.CensusSchemeEmpty, census("acme", "llama", "sglang"))
		require.Equal(t, ranking.CensusModelEmpty, census("acme", "qwen", "vllm"))
		require.Equal(t, ranking.CensusTenantEmpty, census("zeta", "llama", "vllm"))
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b0")})
		require.Equal(t, ranking.CensusIndexEmpty, census("acme", "llama", "vllm"))
		w.holds("a", vllm, 0, "b0")
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "a"})
		require.Equal(t, ranking.CensusIndexEmpty, census("acme", "llama", "vllm"))
	})
}

type still struct{}

func (still) Error() string { return "still serves" }

var errStill = still{}
