package ranking_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
)

// concluded is the reason that the working of an explanation leads to.
func concluded(e *ranking.Explanation) ranking.Reason {
	for _, m := range e.Matches {
		if m.Fate == ranking.FateAnswer {
			return ranking.ReasonPrefixMatch
		}
	}
	for _, h := range e.Hot {
		if h.Fate == ranking.FateAnswer {
			return ranking.ReasonTenantHot
		}
	}
	switch {
	case e.Diagnosis != "":
		return e.Diagnosis
	case e.Seat.OK:
		return ranking.ReasonAffinityHint
	default:
		return ranking.ReasonNoHint
	}
}

// answered are the candidates that the working lets through, in order.
func answered(e *ranking.Explanation) []ranking.Candidate {
	var out []ranking.Candidate
	for _, m := range e.Matches {
		if m.Fate == ranking.FateAnswer {
			out = append(out, m.Candidate)
		}
	}
	for _, h := range e.Hot {
		if h.Fate == ranking.FateAnswer {
			out = append(out, h.Candidate)
		}
	}
	if len(out) == 0 && e.Reason == ranking.ReasonAffinityHint {
		out = append(out, ranking.Candidate{ReplicaID: e.Seat.ReplicaID})
	}
	return out
}

func checkExplain(t *rapid.T, sane bool) {
	l := drawLookup(t, sane)
	reason, want := ranking.Decide(l.in, l.ev, &l.p, &l.k, nil)
	e := ranking.Explain(l.in, l.ev, &l.p, &l.k)
	require.Equal(t, reason, e.Reason)
	require.Equal(t, reason, concluded(e), "the working must lead to the answer: %+v", e)
	require.Len(t, answered(e), len(want))
	for i, c := range answered(e) {
		require.Equal(t, want[i], c)
	}
	if e.Keyed {
		require.Len(t, e.Matches, len(l.ev.Runs), "nobody is left out")
	}
	for _, m := range e.Matches {
		if m.Fate != ranking.FateStray && m.Fate != ranking.FateNoTokens && sane {
			require.InDelta(t, float32(m.MatchedTokens)*m.Factors.Freshness*m.Factors.Pressure*m.Factors.SLO*m.Factors.Power, m.Score, 0, "%+v", m)
		}
	}
	for _, h := range e.Hot {
		if h.Fate == ranking.FateAnswer && sane {
			require.InDelta(t, h.HitRate*h.Factors.Freshness*h.Factors.Pressure*h.Factors.SLO, h.Score, 0, "%+v", h)
		}
	}
	for _, w := range ranking.WhatIfs(l.in, l.ev, &l.p, &l.k) {
		require.False(t, w.Reason == reason && len(want) > 0 && w.Top.ReplicaID == want[0].ReplicaID, "a change that changes nothing: %v", w)
	}
}

func TestExplainIsDecideWhateverGoesIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkExplain(t, false) })
}

func TestExplainsFactorsMultiplyToTheScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkExplain(t, true) })
}

func FuzzExplain(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkExplain(t, false) }))
}

func explain(in *ranking.Input, ev ranking.Evidence, change ...func(*ranking.Policy, *ranking.Knobs)) (*ranking.Explanation, []ranking.WhatIf) {
	p, k := ranking.DefaultPolicy(), ranking.DefaultKnobs()
	for _, f := range change {
		f(&p, &k)
	}
	ev.NowMS = now
	return ranking.Explain(in, &ev, &p, &k), ranking.WhatIfs(in, &ev, &p, &k)
}

func TestAMatchThatAllReplicasShareFallsByItsScore(t *testing.T) {
	e, ifs := explain(ask(2), ranking.Evidence{Serving: serving("a", "b"), Runs: []ranking.Run{run(0, 128), run(1, 128)}})
	require.Equal(t, ranking.ReasonAffinityHint, e.Reason)
	for _, m := range e.Matches {
		require.Equal(t, ranking.FateScoreFloor, m.Fate)
		require.Equal(t, 2, m.AsDeep)
		require.Zero(t, m.Factors.Power)
	}
	require.Contains(t, settings(ifs), "routingFloorScore")
}

func TestAShallowMatchFallsByItsTokens(t *testing.T) {
	e, ifs := explain(ask(1), ranking.Evidence{Serving: serving("a", "b"), Runs: []ranking.Run{run(0, 32)}})
	require.Equal(t, ranking.FateTokenFloor, e.Matches[0].Fate)
	require.Equal(t, float32(0.5), e.Matches[0].Factors.Power)
	require.Equal(t, []string{"minimumMatchedTokens"}, settings(ifs))
	require.Equal(t, "a", ifs[0].Top.ReplicaID)
	require.Equal(t, `minimumMatchedTokens 0 instead of 64: PREFIX_MATCH, "a" first with score 16.000`, ifs[0].String())
}

func TestASaturatedReplicaKeepsNothingOfItsScore(t *testing.T) {
	s := serving("a", "b")
	s[0].Stats.Pressure, s[0].StatsAtMS = 1, now-1000
	e, ifs := explain(ask(2), ranking.Evidence{Serving: s, Runs: []ranking.Run{run(0, 128)}})
	require.Equal(t, ranking.FateScoreFloor, e.Matches[0].Fate)
	require.Zero(t, e.Matches[0].Factors.Pressure)
	require.Equal(t, int64(1000), e.Matches[0].StatsAgeMS)
	require.Contains(t, settings(ifs), "--pressure-weight")
}

func TestEveryServingReplicaHasAFateInTenantHot(t *testing.T) {
	s := serving("a", "b", "c", "d")
	s[0], s[1], s[2] = warm(s[0], 0.9, time.Second), warm(s[1], 0.9, time.Hour), warm(s[2], 0.01, time.Second)
	e, _ := explain(askExact(), ranking.Evidence{Serving: s})
	require.True(t, e.HotAsked)
	var fates []ranking.Fate
	for _, h := range e.Hot {
		fates = append(fates, h.Fate)
	}
	require.Equal(t, []ranking.Fate{ranking.FateAnswer, ranking.FateOldStats, ranking.FateColdCache, ranking.FateNoStats}, fates)
}

func TestAffinityThatIsOffNamesWhoItWouldBe(t *testing.T) {
	e, ifs := explain(ask(1), ranking.Evidence{Serving: serving("a")}, func(p *ranking.Policy, _ *ranking.Knobs) { p.Affinity = false })
	require.Equal(t, ranking.Seat{Why: ranking.NoSeatOff, Of: 1, ReplicaID: "a"}, e.Seat)
	require.Equal(t, []string{"affinityRouting"}, settings(ifs))
	e, _ = explain(ask(1), ranking.Evidence{Census: ranking.CensusModelEmpty})
	require.Equal(t, ranking.ReasonUnknownModel, e.Diagnosis)
	require.Equal(t, ranking.NoSeatServing, e.Seat.Why)
}

func settings(ifs []ranking.WhatIf) (out []string) {
	for _, w := range ifs {
		out = append(out, w.Setting)
	}
	return out
}
