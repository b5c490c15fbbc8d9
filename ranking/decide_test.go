package ranking_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

const (
	now = int64(1_000_000_000)
	ttl = int64(1_800_000) // 30 min
)

// ask is a keyed lookup of a chain of n blocks of 64 tokens.
func ask(n int) *ranking.Input {
	in := &ranking.Input{PrefixTokens: int64(64 * n)}
	in.Scope = ranking.Scope{Tenant: "t", Model: "m"}
	in.Space = ranking.Space{Scheme: "s"}
	in.TTLMS = ttl
	for i := range n {
		in.Hashes, in.Tokens = append(in.Hashes, []byte{byte(i)}), append(in.Tokens, 64)
	}
	return in
}

// askExact is a keyed lookup of one hash for 100 tokens.
func askExact() *ranking.Input {
	in := ask(1)
	in.Exact, in.Tokens, in.PrefixTokens = true, nil, 100
	return in
}

func serving(ids ...string) []ranking.Replica {
	var out []ranking.Replica
	for _, id := range ids {
		out = append(out, ranking.Replica{ID: id})
	}
	return out
}

func run(replica int, tokens int64) ranking.Run {
	return ranking.Run{Replica: replica, Tokens: tokens, SeenMS: now, Tier: ranking.TierT1, Blocks: 1}
}

func warm(r ranking.Replica, hitRate float32, age time.Duration) ranking.Replica {
	r.Stats.HitRate, r.StatsAtMS = hitRate, now-age.Milliseconds()
	return r
}

func decide(in *ranking.Input, ev ranking.Evidence, change ...func(*ranking.Policy)) (ranking.Reason, []ranking.Candidate) {
	p, k := ranking.DefaultPolicy(), ranking.DefaultKnobs()
	for _, f := range change {
		f(&p)
	}
	ev.NowMS = now
	return ranking.Decide(in, &ev, &p, &k, nil)
}

func noAffinity(p *ranking.Policy) { p.Affinity = false }
func noFloors(p *ranking.Policy)   { p.MinimumMatchedTokens, p.RoutingFloorScore = 0, 0 }

func ids(cands []ranking.Candidate) []string {
	out := []string{}
	for _, c := range cands {
		out = append(out, c.ReplicaID)
	}
	return out
}

func TestChainMatchIsRankedByDepthAndDistinguishingPower(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a", "b", "c", "d"), Runs: []ranking.Run{run(2, 64), run(0, 192), run(1, 128)}}
	reason, got := decide(ask(3), ev)
	require.Equal(t, ranking.ReasonPrefixMatch, reason)
	require.Equal(t, []ranking.Candidate{
		{ReplicaID: "a", Score: 192 * 0.75, MatchedTokens: 192, HitProb: 1, Tier: ranking.TierT1},
		{ReplicaID: "b", Score: 128 * 0.5, MatchedTokens: 128, HitProb: 1, Tier: ranking.TierT1},
		{ReplicaID: "c", Score: 64 * 0.25, MatchedTokens: 64, HitProb: 1, Tier: ranking.TierT1},
	}, got)
}

func TestEquallyDeepReplicasShareTheirPower(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a", "b", "c", "d"), Runs: []ranking.Run{run(3, 128), run(1, 128), run(0, 64)}}
	_, got := decide(ask(2), ev)
	require.Equal(t, []string{"b", "d", "a"}, ids(got), "equal scores rank by id")
	require.InDelta(t, 64, got[0].Score, 1e-3)
	require.InDelta(t, 64, got[1].Score, 1e-3)
	require.InDelta(t, 16, got[2].Score, 1e-3)
}

func TestExactMatchSharesItsPowerAmongAllHolders(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a", "b", "c", "d"), Runs: []ranking.Run{run(0, 100), run(1, 200)}}
	reason, got := decide(askExact(), ev)
	require.Equal(t, ranking.ReasonPrefixMatch, reason)
	require.Equal(t, []string{"b", "a"}, ids(got))
	require.InDelta(t, 100, got[0].Score, 1e-3)
	require.InDelta(t, 50, got[1].Score, 1e-3)
}

func TestRunsOfNoTokensAreNoMatchOfAChain(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a", "b"), Runs: []ranking.Run{run(0, 0)}}
	reason, got := decide(ask(1), ev, noFloors, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason)
	require.Empty(t, got)

	reason, got = decide(askExact(), ev, noFloors, noAffinity)
	require.Equal(t, ranking.ReasonPrefixMatch, reason, "an exact hold of 0 tokens is a hold")
	require.Equal(t, []string{"a"}, ids(got))
}

func TestWhatAllHoldTellsNothing(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a", "b"), Runs: []ranking.Run{run(0, 64), run(1, 64)}}
	reason, got := decide(ask(1), ev, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason)
	require.Empty(t, got)
	reason, got = decide(ask(1), ev)
	require.Equal(t, ranking.ReasonAffinityHint, reason)
	require.Len(t, got, 1)
	reason, got = decide(ask(1), ev, noFloors)
	require.Equal(t, ranking.ReasonPrefixMatch, reason)
	require.Equal(t, []string{"a", "b"}, ids(got))
}

func TestMatchedTokensSaturateOnTheReply(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a"), Runs: []ranking.Run{run(0, 1<<40)}}
	_, got := decide(ask(1), ev)
	require.EqualValues(t, 1<<31-1, got[0].MatchedTokens)
}

func TestFloorsDropReplicasThenTheAnswer(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a", "b", "c"), Runs: []ranking.Run{run(0, 128), run(1, 64), run(2, 63)}}
	_, got := decide(ask(2), ev)
	require.Equal(t, []string{"a", "b"}, ids(got), "63 is below the default of 64")

	reason, got := decide(ask(2), ev, func(p *ranking.Policy) { p.MinimumMatchedTokens = 129 }, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason)
	require.Empty(t, got)

	top := float32(128 * 2.0 / 3)
	reason, got = decide(ask(2), ev, func(p *ranking.Policy) { p.RoutingFloorScore = top * 0.99 })
	require.Equal(t, ranking.ReasonPrefixMatch, reason)
	require.Equal(t, []string{"a", "b"}, ids(got), "the floor is for the best score alone")
	reason, _ = decide(ask(2), ev, func(p *ranking.Policy) { p.RoutingFloorScore = top * 1.01 }, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason)
}

func TestTheTokenFloorIsAppliedBeforeTheScoreFloor(t *testing.T) {
	// b has the best score, but too few tokens; a alone is under the score floor.
	old := run(0, 100)
	old.SeenMS = now - ttl*9/10
	ev := ranking.Evidence{Serving: serving("a", "b", "c", "d"), Runs: []ranking.Run{old, run(1, 60)}}
	_, raw := decide(ask(2), ev, noFloors)
	require.Equal(t, []string{"b", "a"}, ids(raw))
	reason, _ := decide(ask(2), ev, noAffinity, func(p *ranking.Policy) { p.RoutingFloorScore = 20 })
	require.Equal(t, ranking.ReasonNoHint, reason)
}

func TestTenantHotAnswersExactMissesOnly(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a", "b", "c", "d", "e")}
	ev.Serving[0] = warm(ev.Serving[0], 0.5, 0)
	ev.Serving[1] = warm(ev.Serving[1], 0.8, 150*time.Second)
	ev.Serving[2] = warm(ev.Serving[2], 0.1, 0)
	ev.Serving[3] = warm(ev.Serving[3], 0.09, 0)
	ev.Serving[4] = warm(ev.Serving[4], 0.9, 5*time.Minute)

	reason, got := decide(askExact(), ev)
	require.Equal(t, ranking.ReasonTenantHot, reason)
	require.Equal(t, []string{"a", "b", "c"}, ids(got), "d is too cold, the stats of e too old")
	require.InDelta(t, 0.5, got[0].Score, 1e-6)
	require.InDelta(t, 0.4, got[1].Score, 1e-6)
	require.InDelta(t, 0.8, got[1].HitProb, 1e-6)
	require.Zero(t, got[0].MatchedTokens)
	require.Equal(t, ranking.TierNone, got[0].Tier)

	reason, _ = decide(ask(1), ev, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason, "a chain miss skips it")
	reason, _ = decide(askExact(), ev, noAffinity, func(p *ranking.Policy) { p.TenantHot = false })
	require.Equal(t, ranking.ReasonNoHint, reason)

	in := askExact()
	in.TTFTMS = 100
	_, got = decide(in, ev)
	require.InDelta(t, 1.0, got[0].Score, 1e-6, "a tight request counts recency twice")
}

func TestTenantHotIsOffAtAgeZero(t *testing.T) {
	ev := ranking.Evidence{NowMS: now, Serving: []ranking.Replica{warm(ranking.Replica{ID: "a"}, 1, 0)}}
	p, k := ranking.DefaultPolicy(), ranking.DefaultKnobs()
	p.Affinity, k.TenantHotMaxAge = false, 0
	reason, _ := ranking.Decide(askExact(), &ev, &p, &k, nil)
	require.Equal(t, ranking.ReasonNoHint, reason)
}

func TestGatedMatchesAreNotReplacedByWeakerEvidence(t *testing.T) {
	ev := ranking.Evidence{Serving: []ranking.Replica{warm(ranking.Replica{ID: "a"}, 0.9, 0)}, Runs: []ranking.Run{run(0, 10)}}
	reason, _ := decide(askExact(), ev, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason, "not TENANT_HOT: there was a match")
}

func TestShortPrompts(t *testing.T) {
	short := func(p *ranking.Policy) { p.MinimumPrefixTokens = 101 }
	p := ranking.DefaultPolicy()
	short(&p)
	_, stop := ranking.Gate(askExact(), &p)
	require.False(t, stop, "affinity still wants the index")
	p.Affinity = false
	reason, stop := ranking.Gate(askExact(), &p)
	require.True(t, stop)
	require.Equal(t, ranking.ReasonNoHint, reason)
	p.MinimumPrefixTokens = 100
	_, stop = ranking.Gate(askExact(), &p)
	require.False(t, stop, "as long as the minimum is long enough")

	match := ranking.Evidence{Serving: serving("a"), Runs: []ranking.Run{run(0, 100)}}
	reason, _ = decide(askExact(), match, short)
	require.Equal(t, ranking.ReasonAffinityHint, reason)
	hot := ranking.Evidence{Serving: []ranking.Replica{warm(ranking.Replica{ID: "a"}, 0.9, 0)}}
	reason, _ = decide(askExact(), hot, short)
	require.Equal(t, ranking.ReasonAffinityHint, reason)
	reason, _ = decide(askExact(), ranking.Evidence{Census: ranking.CensusTenantEmpty}, short)
	require.Equal(t, ranking.ReasonUnknownTenant, reason, "a short prompt is diagnosed all the same")
}

func TestDiagnosisNamesTheFirstUnknownKey(t *testing.T) {
	for census, want := range map[ranking.Census]ranking.Reason{
		ranking.CensusKnown:       ranking.ReasonNoHint,
		ranking.CensusIndexEmpty:  ranking.ReasonNoHint,
		ranking.CensusTenantEmpty: ranking.ReasonUnknownTenant,
		ranking.CensusModelEmpty:  ranking.ReasonUnknownModel,
		ranking.CensusSchemeEmpty: ranking.ReasonUnknownHashScheme,
		ranking.Census(99):        ranking.ReasonNoHint,
	} {
		for _, in := range []*ranking.Input{ask(1), askExact()} {
			reason, got := decide(in, ranking.Evidence{Census: census})
			require.Equal(t, want, reason, "census %d", census)
			require.Empty(t, got)
		}
	}
	reason, _ := decide(ask(1), ranking.Evidence{Serving: serving("a"), Census: ranking.CensusTenantEmpty}, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason, "a served domain is known")
}

func TestAffinityAnswersWithOneReplicaAndNoClaim(t *testing.T) {
	in := askExact()
	in.Hashes = [][]byte{[]byte("p")}
	reason, got := decide(in, ranking.Evidence{Serving: serving("a", "b", "c")})
	require.Equal(t, ranking.ReasonAffinityHint, reason)
	require.Equal(t, []ranking.Candidate{{ReplicaID: "b"}}, got, "SHA-256 of p falls on the second of three")

	in.Hashes = [][]byte{nil}
	reason, _ = decide(in, ranking.Evidence{Serving: serving("a", "b", "c")})
	require.Equal(t, ranking.ReasonNoHint, reason, "no seed")
}

func TestAMissingKeyIsNoHintWhateverTheIndexSays(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a"), Runs: []ranking.Run{run(0, 100)}}
	for _, unset := range []func(*ranking.Input){
		func(in *ranking.Input) { in.Tenant = "" },
		func(in *ranking.Input) { in.Model = "" },
		func(in *ranking.Input) { in.Scheme = "" },
	} {
		in := ask(1)
		unset(in)
		require.False(t, in.Keyed())
		reason, got := decide(in, ev)
		require.Equal(t, ranking.ReasonNoHint, reason)
		require.Empty(t, got)
		reason, _ = decide(in, ranking.Evidence{Census: ranking.CensusTenantEmpty})
		require.Equal(t, ranking.ReasonNoHint, reason, "nor is it diagnosed")
	}
}

func TestRunsOfNobodyAreIgnored(t *testing.T) {
	ev := ranking.Evidence{Serving: serving("a"), Runs: []ranking.Run{run(-1, 100), run(1, 100), run(1<<40, 100)}}
	reason, _ := decide(ask(1), ev, noAffinity)
	require.Equal(t, ranking.ReasonNoHint, reason)
}

func TestAFleetThatSharesThePromptIsRankedLikeAFewReplicas(t *testing.T) {
	const n = 300
	ev := ranking.Evidence{NowMS: now}
	for i := range n {
		ev.Serving = append(ev.Serving, ranking.Replica{ID: fmt.Sprintf("r%03d", i)})
		ev.Runs = append(ev.Runs, run(n-1-i, 64))
	}
	ev.Runs[n-1-7].Tokens, ev.Runs[n-1-250].Tokens = 640, 640
	reason, got := decide(ask(10), ev, func(p *ranking.Policy) { p.RoutingFloorScore = 0 })
	require.Equal(t, ranking.ReasonPrefixMatch, reason)
	require.Len(t, got, n)
	require.Equal(t, []string{"r007", "r250", "r000", "r001"}, ids(got[:4]))
	require.InDelta(t, 640*298.0/300, got[0].Score, 1e-3)
	require.InDelta(t, 640*298.0/300, got[1].Score, 1e-3)
	require.Zero(t, got[2].Score, "all hold that much")
}

// What producers report beyond a share of all is kept, and not believed.
func TestAHitRateAboveOneCountsAsOne(t *testing.T) {
	ev := ranking.Evidence{Serving: []ranking.Replica{warm(ranking.Replica{ID: "a"}, 7, 0), warm(ranking.Replica{ID: "b"}, 1, 0)}}
	reason, got := decide(askExact(), ev)
	require.Equal(t, ranking.ReasonTenantHot, reason)
	require.Equal(t, []ranking.Candidate{{ReplicaID: "a", Score: 1, HitProb: 1}, {ReplicaID: "b", Score: 1, HitProb: 1}}, got)
}
