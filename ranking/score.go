package ranking

import (
	"cmp"
	"math"
	"slices"
)

// The factors of a score. Each is a pure function of its inputs, never NaN and
// never below 0, so that no stored value, however odd, can poison an order.

// freshness falls from 1 to 0 over the TTL. A hold from the future is as fresh
// as a new one, never fresher.
func freshness(ageMS, ttlMS int64) float32 {
	if ageMS <= 0 {
		return 1
	}
	if ageMS >= ttlMS {
		return 0
	}
	return float32(1 - float64(ageMS)/float64(ttlMS))
}

// pressureFactor is the share of its score that a loaded replica keeps: at most
// 1, so that a negative pressure never lifts it, and 1 when the replica reported
// none within the TTL.
func pressureFactor(r *Replica, nowMS, ttlMS int64, weight float32) float32 {
	if r.StatsAtMS == 0 || nowMS-r.StatsAtMS >= ttlMS {
		return 1
	}
	f := 1 - weight*r.Stats.Pressure
	switch {
	case f >= 1 || f != f: // NaN: the product of garbage is no evidence of load
		return 1
	case f <= 0:
		return 0
	default:
		return f
	}
}

// sloFactor lifts fresh replicas for a request that is in a hurry.
func sloFactor(fresh float32, ttftMS int32, k *Knobs) float32 {
	if ttftMS <= 0 || ttftMS >= k.SLOTightTTFTMS {
		return 1
	}
	return 1 + fresh*k.SLOTightBias
}

// powerFactor is how much a match tells replicas apart: what all of the serving
// replicas hold tells nothing, and with one replica there is nothing to tell.
// matched is how many replicas matched at least as much.
func powerFactor(matched, serving int) float32 {
	if serving <= 1 {
		return 1
	}
	if matched >= serving {
		return 0
	}
	return float32(1 - float64(matched)/float64(serving))
}

// finite is a product of factors as a score: knobs of absurd size must not
// yield what cannot be compared.
func finite(score float32) float32 {
	switch {
	case score > math.MaxFloat32:
		return math.MaxFloat32
	case score >= 0:
		return score
	default: // negative or NaN
		return 0
	}
}

// saturate is a token sum as a reply carries it.
func saturate(tokens int64) int32 {
	return int32(max(0, min(tokens, math.MaxInt32)))
}

// appendMatches appends the replicas that matched, scored and best first.
func appendMatches(dst []Candidate, in *Input, ev *Evidence, k *Knobs) []Candidate {
	for i := range ev.Runs {
		run := &ev.Runs[i]
		if uint(run.Replica) >= uint(len(ev.Serving)) {
			continue // not of this view: without its name it is no answer
		}
		tokens := saturate(run.Tokens)
		if tokens == 0 && in.Chain() {
			continue
		}
		r := &ev.Serving[run.Replica]
		fresh := freshness(ev.NowMS-run.SeenMS, in.TTLMS)
		dst = append(dst, Candidate{
			ReplicaID:     r.ID,
			MatchedTokens: tokens,
			HitProb:       fresh,
			Tier:          run.Tier,
			Score: float32(tokens) * fresh *
				pressureFactor(r, ev.NowMS, in.TTLMS, k.PressureWeight) *
				sloFactor(fresh, in.TTFTMS, k),
		})
	}
	if in.Exact {
		applyPower(dst, len(dst), len(ev.Serving))
	} else {
		applyPowerByDepth(dst, len(ev.Serving))
	}
	slices.SortFunc(dst, bestFirst)
	return dst
}

// applyPower finishes the scores of candidates that all count as equally deep.
func applyPower(cands []Candidate, matched, serving int) {
	power := powerFactor(matched, serving)
	for i := range cands {
		cands[i].Score = finite(cands[i].Score * power)
	}
}

// applyPowerByDepth finishes the scores of chain matches: a replica shares its
// depth with those that matched as many tokens or more. Deepest first, that is
// every candidate up to the end of its group of equals.
func applyPowerByDepth(cands []Candidate, serving int) {
	slices.SortFunc(cands, deepestFirst)
	for from := 0; from < len(cands); {
		to := from + 1
		for to < len(cands) && cands[to].MatchedTokens == cands[from].MatchedTokens {
			to++
		}
		applyPower(cands[from:to], to, serving)
		from = to
	}
}

func deepestFirst(a, b Candidate) int { return cmp.Compare(b.MatchedTokens, a.MatchedTokens) }

// bestFirst orders an answer; scores are finite here.
func bestFirst(a, b Candidate) int {
	switch {
	case a.Score > b.Score:
		return -1
	case a.Score < b.Score:
		return 1
	default:
		return cmp.Compare(a.ReplicaID, b.ReplicaID)
	}
}
