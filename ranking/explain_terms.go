package ranking

import (
	"cmp"
	"slices"
)

// explainMatches fills Matches from the runs and from what appendMatches made of them.
func (e *Explanation) explainMatches(in *Input, ev *Evidence, k *Knobs, scored []Candidate) {
	rank := make(map[string]int, len(scored))
	for i, c := range scored {
		rank[c.ReplicaID] = i
	}
	for i := range ev.Runs {
		run := &ev.Runs[i]
		m := MatchTerms{Run: *run, AgeMS: ev.NowMS - run.SeenMS, StatsAgeMS: -1}
		if uint(run.Replica) >= uint(len(ev.Serving)) {
			m.Fate = FateStray
			e.Matches = append(e.Matches, m)
			continue
		}
		r := &ev.Serving[run.Replica]
		fresh := freshness(m.AgeMS, in.TTLMS)
		m.Factors = Factors{
			Freshness: fresh,
			Pressure:  pressureFactor(r, ev.NowMS, in.TTLMS, k.PressureWeight),
			SLO:       sloFactor(fresh, in.TTFTMS, k),
		}
		if r.StatsAtMS != 0 {
			m.StatsAgeMS, m.ReportedPressure = ev.NowMS-r.StatsAtMS, r.Stats.Pressure
		}
		at, counted := rank[r.ID]
		if !counted {
			m.Fate, m.ReplicaID = FateNoTokens, r.ID
			e.Matches = append(e.Matches, m)
			continue
		}
		m.Candidate = scored[at]
		m.AsDeep = asDeep(in, scored, m.MatchedTokens)
		m.Factors.Power = powerFactor(m.AsDeep, len(ev.Serving))
		e.Matches = append(e.Matches, m)
	}
	last := func(m *MatchTerms) int {
		if at, ok := rank[m.ReplicaID]; ok && m.Fate == "" {
			return at
		}
		return len(scored)
	}
	slices.SortStableFunc(e.Matches, func(a, b MatchTerms) int {
		return cmp.Or(cmp.Compare(last(&a), last(&b)), cmp.Compare(a.ReplicaID, b.ReplicaID))
	})
}

// asDeep is how many of the scored replicas matched at least as many tokens; of an
// exact hash all count as equal.
func asDeep(in *Input, scored []Candidate, tokens int32) (n int) {
	if in.Exact {
		return len(scored)
	}
	for i := range scored {
		if scored[i].MatchedTokens >= tokens {
			n++
		}
	}
	return n
}

// judgeMatches says which gate each match passed or fell at, in Decide's order.
func (e *Explanation) judgeMatches(p *Policy, scored []Candidate) {
	kept := aboveTokenFloor(slices.Clone(scored), p.MinimumMatchedTokens)
	above := make(map[string]bool, len(kept))
	for _, c := range kept {
		above[c.ReplicaID] = true
	}
	floored := len(kept) > 0 && kept[0].Score < p.RoutingFloorScore
	for i := range e.Matches {
		m := &e.Matches[i]
		switch {
		case m.Fate != "":
		case e.Short:
			m.Fate = FateShort
		case !above[m.ReplicaID]:
			m.Fate = FateTokenFloor
		case floored:
			m.Fate = FateScoreFloor
		default:
			m.Fate = FateAnswer
		}
	}
}

// explainHot fills Hot from the serving set and from what appendTenantHot made of it.
func (e *Explanation) explainHot(in *Input, ev *Evidence, k *Knobs) {
	e.HotAsked = true
	scored := appendTenantHot(nil, in, ev, k)
	rank := make(map[string]int, len(scored))
	for i, c := range scored {
		rank[c.ReplicaID] = i
	}
	maxAgeMS := k.TenantHotMaxAge.Milliseconds()
	for i := range ev.Serving {
		r := &ev.Serving[i]
		h := HotTerms{Candidate: Candidate{ReplicaID: r.ID}, HitRate: r.Stats.HitRate, StatsAgeMS: -1}
		if r.StatsAtMS != 0 {
			h.StatsAgeMS = ev.NowMS - r.StatsAtMS
		}
		at, counted := rank[r.ID]
		switch {
		case counted:
			recency := freshness(h.StatsAgeMS, maxAgeMS)
			h.Candidate = scored[at]
			h.Factors = Factors{
				Freshness: recency, Power: 1,
				Pressure: pressureFactor(r, ev.NowMS, in.TTLMS, k.PressureWeight),
				SLO:      sloFactor(recency, in.TTFTMS, k),
			}
			h.Fate = FateAnswer
			if e.Short {
				h.Fate = FateShort
			}
		case r.StatsAtMS == 0:
			h.Fate = FateNoStats
		case h.StatsAgeMS >= maxAgeMS:
			h.Fate = FateOldStats
		default:
			h.Fate = FateColdCache
		}
		e.Hot = append(e.Hot, h)
	}
	last := func(h *HotTerms) int {
		if at, ok := rank[h.ReplicaID]; ok {
			return at
		}
		return len(scored)
	}
	slices.SortStableFunc(e.Hot, func(a, b HotTerms) int {
		return cmp.Or(cmp.Compare(last(&a), last(&b)), cmp.Compare(a.ReplicaID, b.ReplicaID))
	})
}

func hasFate(hot []HotTerms, fates ...Fate) bool {
	return slices.ContainsFunc(hot, func(h HotTerms) bool { return slices.Contains(fates, h.Fate) })
}
