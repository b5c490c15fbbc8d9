package ranking_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
)

// lookup is one drawn call of Decide.
type lookup struct {
	in *ranking.Input
	ev *ranking.Evidence
	p  ranking.Policy
	k  ranking.Knobs
}

// drawLookup draws anything that the types allow; a sane one is what a checked
// configuration and a working index can give.
func drawLookup(t *rapid.T, sane bool) lookup {
	float := func(label string, lo, hi float32) float32 {
		if sane {
			return rapid.Float32Range(lo, hi).Draw(t, label)
		}
		if rapid.IntRange(0, 3).Draw(t, label+" odd") == 0 {
			return rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -1}).Draw(t, label)
		}
		return rapid.Float32().Draw(t, label)
	}
	integer := func(label string, lo, hi int64) int64 {
		if !sane && rapid.IntRange(0, 3).Draw(t, label+" odd") == 0 {
			return rapid.Int64().Draw(t, label)
		}
		return rapid.Int64Range(min(lo, hi), hi).Draw(t, label)
	}
	in := ask(rapid.IntRange(0, 3).Draw(t, "blocks"))
	in.Exact = rapid.Bool().Draw(t, "exact")
	in.PrefixTokens = integer("prefix tokens", 0, 300)
	in.TTFTMS = int32(integer("ttft", 0, 400))
	in.TTLMS = integer("ttl", 1, 2*ttl)
	if rapid.IntRange(0, 9).Draw(t, "unkeyed") == 0 {
		in.Scheme = ""
	}
	ev := &ranking.Evidence{NowMS: integer("now", now, now+10)}
	n := rapid.IntRange(0, rapid.SampledFrom([]int{4, 20, 60}).Draw(t, "fleet")).Draw(t, "serving")
	for i := range n {
		r := ranking.Replica{ID: fmt.Sprintf("r%02d", i)}
		if rapid.Bool().Draw(t, "has stats") {
			r.StatsAtMS = integer("stats at", now-2*ttl, now)
			r.Stats.HitRate = float("hit rate", 0, 1)
			r.Stats.Pressure = float("pressure", 0, 1.5)
		}
		ev.Serving = append(ev.Serving, r)
		if rapid.Bool().Draw(t, "matches") {
			ev.Runs = append(ev.Runs, ranking.Run{
				Replica: i, SeenMS: integer("seen", now-in.TTLMS, now+5), Blocks: 1,
				Tokens: integer("tokens", 0, 4) * 64, Tier: ranking.Tier(rapid.Byte().Draw(t, "tier")),
			})
		}
	}
	if !sane {
		for range rapid.IntRange(0, 2).Draw(t, "strays") {
			stray := rapid.OneOf(rapid.IntMax(-1), rapid.IntMin(n)).Draw(t, "stray")
			ev.Runs = append(ev.Runs, ranking.Run{Replica: stray, Tokens: 64, SeenMS: now})
		}
	}
	if len(ev.Runs) > 1 {
		ev.Runs = rapid.Permutation(ev.Runs).Draw(t, "order")
	}
	ev.Partial = rapid.IntRange(0, 4).Draw(t, "partial") == 0
	if n == 0 {
		ev.Census = ranking.Census(rapid.IntRange(0, 5).Draw(t, "census"))
	}
	return lookup{in, ev,
		ranking.Policy{
			MinimumPrefixTokens: integer("min prefix", 0, 200), MinimumMatchedTokens: integer("min matched", 0, 200),
			RoutingFloorScore: float("floor", 0, 100),
			Affinity:          rapid.Bool().Draw(t, "affinity"), TenantHot: rapid.Bool().Draw(t, "tenant hot"),
		},
		ranking.Knobs{
			PressureWeight: float("weight", 0, 2), SLOTightTTFTMS: int32(integer("tight", 0, 300)), SLOTightBias: float("bias", 0, 2),
			TenantHotMinHitRate: float("min hit rate", 0, 0.5), TenantHotMaxAge: time.Duration(integer("max age", 0, int64(time.Hour))),
		},
	}
}

// checkWellFormed holds for every answer, whatever went in.
func checkWellFormed(t *rapid.T, l lookup, reason ranking.Reason, got []ranking.Candidate) {
	require.Contains(t, ranking.Reasons(), reason)
	seen := map[string]bool{}
	for i, c := range got {
		for _, v := range []float32{c.Score, c.HitProb} {
			require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) || v < 0, "%+v", c)
		}
		require.LessOrEqual(t, c.HitProb, float32(1))
		require.GreaterOrEqual(t, c.MatchedTokens, int32(0))
		require.NotEmpty(t, c.ReplicaID)
		seen[c.ReplicaID] = true
		if i > 0 {
			b := got[i-1]
			require.True(t, b.Score > c.Score || b.Score == c.Score && b.ReplicaID < c.ReplicaID, "%+v before %+v", b, c)
		}
	}
	require.Len(t, seen, len(got), "nobody stands twice")
	if l.ev.Partial {
		require.Contains(t, []ranking.Reason{ranking.ReasonPrefixMatch, ranking.ReasonNoHint}, reason)
	}
	switch reason {
	case ranking.ReasonPrefixMatch:
		require.NotEmpty(t, got)
	case ranking.ReasonTenantHot:
		require.NotEmpty(t, got)
		require.True(t, l.in.Exact && l.p.TenantHot)
	case ranking.ReasonAffinityHint:
		require.Len(t, got, 1)
		require.Equal(t, ranking.Candidate{ReplicaID: got[0].ReplicaID}, got[0])
		require.True(t, l.p.Affinity)
	default:
		require.Empty(t, got)
	}
}

func checkAnyLookup(t *rapid.T) {
	l := drawLookup(t, false)
	ranking.Gate(l.in, &l.p)
	reason, got := ranking.Decide(l.in, l.ev, &l.p, &l.k, make([]ranking.Candidate, 3))
	checkWellFormed(t, l, reason, got)
}

func TestDecideIsWellFormedWhateverGoesIn(t *testing.T) { rapid.Check(t, checkAnyLookup) }
func FuzzDecide(f *testing.F)                           { f.Fuzz(rapid.MakeFuzz(checkAnyLookup)) }

// obviousMatches scores by the table of the contract, in float64, and finds
// each replica's equals by comparing it with all others.
func obviousMatches(l lookup) map[string]float64 {
	scored := []ranking.Run{}
	for _, r := range l.ev.Runs {
		if l.in.Exact || r.Tokens > 0 {
			scored = append(scored, r)
		}
	}
	out := map[string]float64{}
	for _, r := range scored {
		m := 0
		for _, other := range scored {
			if l.in.Exact || other.Tokens >= r.Tokens {
				m++
			}
		}
		rep := l.ev.Serving[r.Replica]
		fresh := max(0, 1-max(0, float64(l.ev.NowMS-r.SeenMS))/float64(l.in.TTLMS))
		pressure, slo, power := 1.0, 1.0, 1.0
		if rep.StatsAtMS != 0 && l.ev.NowMS-rep.StatsAtMS < l.in.TTLMS {
			pressure = min(1, max(0, 1-float64(l.k.PressureWeight)*float64(rep.Stats.Pressure)))
		}
		if 0 < l.in.TTFTMS && l.in.TTFTMS < l.k.SLOTightTTFTMS {
			slo = 1 + fresh*float64(l.k.SLOTightBias)
		}
		if n := len(l.ev.Serving); n > 1 {
			power = max(0, 1-float64(m)/float64(n))
		}
		out[rep.ID] = float64(r.Tokens) * fresh * pressure * slo * power
	}
	return out
}

func checkMatches(t *rapid.T) {
	l := drawLookup(t, true)
	l.in.Scheme = "s"
	l.p.MinimumPrefixTokens, l.p.MinimumMatchedTokens, l.p.RoutingFloorScore = 0, 0, 0
	want := obviousMatches(l)
	before := slices.Clone(l.ev.Runs)
	reason, got := ranking.Decide(l.in, l.ev, &l.p, &l.k, nil)
	checkWellFormed(t, l, reason, got)
	require.Equal(t, before, l.ev.Runs, "the evidence is shared: read only")
	require.Equal(t, len(want) > 0, reason == ranking.ReasonPrefixMatch)
	if reason == ranking.ReasonPrefixMatch {
		require.Len(t, got, len(want))
		for _, c := range got {
			require.InDelta(t, want[c.ReplicaID], c.Score, 1e-3+1e-5*want[c.ReplicaID], c.ReplicaID)
		}
	}
}

func TestScoresFollowTheFactorTable(t *testing.T) { rapid.Check(t, checkMatches) }
func FuzzScores(f *testing.F)                     { f.Fuzz(rapid.MakeFuzz(checkMatches)) }

// matched is a lookup that n of 2n serving replicas match at n different depths.
func matched(n int, exact bool) lookup {
	l := lookup{in: ask(1), ev: &ranking.Evidence{NowMS: now}, p: ranking.DefaultPolicy(), k: ranking.DefaultKnobs()}
	l.in.Exact, l.in.PrefixTokens = exact, 1<<20
	for i := range 2 * n {
		r := warm(ranking.Replica{ID: fmt.Sprintf("engine-%04d", i)}, 0.5, time.Second)
		r.Stats.Pressure = float32(i%5) / 10
		l.ev.Serving = append(l.ev.Serving, r)
	}
	for i := range n {
		at := i * 7919 % n // another order than that of the ids
		l.ev.Runs = append(l.ev.Runs, ranking.Run{Replica: at, Tokens: int64(64 * (1 + at%9)), SeenMS: now - int64(at)*1000, Tier: 1, Blocks: 1})
	}
	return l
}

func BenchmarkDecide(b *testing.B) {
	for _, bc := range []struct {
		name  string
		runs  int
		exact bool
	}{{"chain/8", 8, false}, {"chain/128", 128, false}, {"chain/300", 300, false}, {"exact/8", 8, true}, {"exact/128", 128, true}} {
		b.Run(bc.name, func(b *testing.B) {
			l := matched(bc.runs, bc.exact)
			dst := make([]ranking.Candidate, 0, bc.runs)
			b.ReportAllocs()
			for b.Loop() {
				ranking.Decide(l.in, l.ev, &l.p, &l.k, dst)
			}
		})
	}
}

func BenchmarkFingerprints(b *testing.B) {
	tokens, dst := upTo(256*16), make([]byte, 0, 256*8)
	b.ReportAllocs()
	for b.Loop() {
		ranking.AppendFingerprints(dst, nil, tokens, 16)
	}
}
