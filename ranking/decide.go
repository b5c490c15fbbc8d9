package ranking

// Candidate is one replica of an answer.
type Candidate struct {
	ReplicaID string
	// Score orders the answer; finite, 0 or more.
	Score float32
	// MatchedTokens saturates at the largest int32.
	MatchedTokens int32
	// HitProb is the estimated probability that the cache still holds it: the
	// freshness of a match, the hit rate of TENANT_HOT, 0 of AFFINITY_HINT.
	HitProb float32
	// Tier is the coldest of the matched blocks; TierNone claims nothing.
	Tier Tier
}

// Gate is what a policy says before the index is asked: true stops the lookup
// with the Reason. A short prompt is worth the index only for its affinity.
func Gate(in *Input, p *Policy) (Reason, bool) {
	if tooShort(in, p) && !p.Affinity {
		return ReasonNoHint, true
	}
	return "", false
}

// Decide turns what the index found into an answer. The candidates, best first
// and ties by replica id, overwrite dst; with enough room in it nothing is
// allocated. Every Reason but PREFIX_MATCH, TENANT_HOT and AFFINITY_HINT comes
// with none. ev is read only, and Decide has no clock: ev.NowMS is the time.
//
// On Partial evidence a match stands, but nothing is concluded from what was not
// found: "nobody holds it" would be a guess, and the seats of affinity are counted
// over a serving set that may lack members.
func Decide(in *Input, ev *Evidence, p *Policy, k *Knobs, dst []Candidate) (Reason, []Candidate) {
	none := dst[:0]

	// A contract violation, not a miss: nothing is matched, diagnosed or pinned.
	if !in.Keyed() {
		return ReasonNoHint, none
	}

	// The evidence, strongest first. A chain miss says that the prompt is novel
	// from its first block, so warmth in general is no help.
	found := appendMatches(none, in, ev, k)
	reason := ReasonPrefixMatch
	if len(found) == 0 && in.Exact && p.TenantHot && !ev.Partial {
		found = appendTenantHot(none, in, ev, k)
		reason = ReasonTenantHot
	}

	// Nothing at all: perhaps the caller and the producers disagree on a name.
	if len(found) == 0 && !ev.Partial {
		if unknown, ok := diagnose(ev); ok {
			return unknown, none
		}
	}

	// The gates. What they remove is not replaced by weaker evidence.
	if tooShort(in, p) {
		found = none
	}
	if reason == ReasonPrefixMatch {
		found = aboveTokenFloor(found, p.MinimumMatchedTokens)
		if len(found) > 0 && found[0].Score < p.RoutingFloorScore {
			found = none
		}
	}
	if len(found) > 0 {
		return reason, found
	}

	// No evidence, but a steady choice: a repeated prompt warms one cache.
	if p.Affinity && !ev.Partial {
		if seat, ok := affinitySeat(in, len(ev.Serving)); ok {
			return ReasonAffinityHint, append(none, Candidate{ReplicaID: ev.Serving[seat].ID})
		}
	}
	return ReasonNoHint, none
}

func tooShort(in *Input, p *Policy) bool { return in.PrefixTokens < p.MinimumPrefixTokens }

// aboveTokenFloor keeps, in order and in place, the candidates that matched at
// least floor tokens.
func aboveTokenFloor(cands []Candidate, floor int64) []Candidate {
	kept := cands[:0]
	for _, c := range cands {
		if int64(c.MatchedTokens) >= floor {
			kept = append(kept, c)
		}
	}
	return kept
}

// diagnose names the key of the lookup that the index does not know. An index
// that holds nothing for anyone has just started, which is nobody's mistake.
func diagnose(ev *Evidence) (Reason, bool) {
	if len(ev.Serving) > 0 {
		return "", false
	}
	switch ev.Census {
	case CensusTenantEmpty:
		return ReasonUnknownTenant, true
	case CensusModelEmpty:
		return ReasonUnknownModel, true
	case CensusSchemeEmpty:
		return ReasonUnknownHashScheme, true
	default: // CensusKnown, CensusIndexEmpty
		return "", false
	}
}
