package rankingtest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

var (
	ctx   = context.Background()
	scope = ranking.Scope{Tenant: "t", Model: "m"}
)

func report(replica string, seenMS int64, hashes ...string) *ranking.Report {
	r := &ranking.Report{Scope: scope, Replica: replica, Scheme: "s", SeenMS: seenMS}
	for i, h := range hashes {
		r.Entries = append(r.Entries, ranking.Entry{Hash: []byte(h), Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1})
	}
	return r
}

func query(hashes ...string) *ranking.Query {
	q := &ranking.Query{Scope: scope, Space: ranking.Space{Scheme: "s"}, TTLMS: 1000}
	for _, h := range hashes {
		q.Hashes, q.Tokens = append(q.Hashes, []byte(h)), append(q.Tokens, 10)
	}
	return q
}

func match(t *testing.T, m *rankingtest.Model, q *ranking.Query) ranking.Evidence {
	var ev ranking.Evidence
	require.NoError(t, m.Match(ctx, q, &ev))
	return ev
}

func TestExpiredHoldsNeverMatchButServeUntilTheSweep(t *testing.T) {
	nowMS := int64(10_000)
	m := rankingtest.New(func() int64 { return nowMS })
	require.NoError(t, m.Report(ctx, report("old", 9000, "a", "b")))
	require.NoError(t, m.Report(ctx, report("new", 9001, "a")))
	ev := match(t, m, query("a", "b"))
	require.Equal(t, []ranking.Replica{{ID: "new"}, {ID: "old"}}, ev.Serving)
	require.Equal(t, []ranking.Run{{Replica: 0, Tokens: 10, SeenMS: 9001, Tier: ranking.TierT1, Blocks: 1}}, ev.Runs)

	m.Sweep(1000)
	require.Equal(t, []ranking.Replica{{ID: "new"}}, match(t, m, query("a")).Serving)
	nowMS++
	m.Sweep(1000)
	require.Equal(t, ranking.CensusIndexEmpty, match(t, m, query("a")).Census)
}

func TestNothingIsReportedFromTheFuture(t *testing.T) {
	m := rankingtest.New(func() int64 { return 10_000 })
	require.NoError(t, m.Report(ctx, report("r", 99_000, "a")))
	require.EqualValues(t, 10_000, match(t, m, query("a")).Runs[0].SeenMS)
}

func TestCensusFindsTheFirstUnknownKey(t *testing.T) {
	m := rankingtest.New(func() int64 { return 10_000 })
	require.NoError(t, m.Report(ctx, report("r", 0, "a")))
	for want, change := range map[ranking.Census]func(*ranking.Query){
		ranking.CensusKnown:       func(*ranking.Query) {},
		ranking.CensusTenantEmpty: func(q *ranking.Query) { q.Tenant = "x" },
		ranking.CensusModelEmpty:  func(q *ranking.Query) { q.Model = "x" },
		ranking.CensusSchemeEmpty: func(q *ranking.Query) { q.Scheme = "x" },
	} {
		q := query("a")
		change(q)
		require.Equal(t, want, match(t, m, q).Census)
	}
	q := query("a")
	q.Adapter = "x"
	require.Equal(t, ranking.CensusKnown, match(t, m, q).Census, "the census is blind to adapters")
}

func TestStateCountsKeysNotHolds(t *testing.T) {
	m := rankingtest.New(func() int64 { return 10_000 })
	require.NoError(t, m.Report(ctx, report("r1", 0, "a", "b")))
	r2 := report("r2", 0, "b", "c")
	r2.Stats = &ranking.Stats{HitRate: 0.5}
	require.NoError(t, m.Report(ctx, r2))
	state, err := m.State(ctx, scope)
	require.NoError(t, err)
	require.EqualValues(t, 3, state.Prefixes)
	require.Equal(t, []ranking.Replica{{ID: "r2", Stats: ranking.Stats{HitRate: 0.5}, StatsAtMS: 10_000, AliveAtMS: 10_000}}, state.Replicas)

	require.NoError(t, m.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "r2"}))
	state, err = m.State(ctx, scope)
	require.NoError(t, err)
	require.Equal(t, ranking.State{Prefixes: 2}, state)
}
