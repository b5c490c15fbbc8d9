package ranking

import "slices"

// appendMatches appends the replicas that matched, scored and best first.
func appendMatches(dst []Candidate, in *Input, ev *Evidence, k *Knobs) []Candidate {
	if len(ev.Runs) == 0 {
		return dst
	}
	o := orders.Get().(*order)
	for _, i := range o.byReplica(ev.Runs) {
		dst = appendMatch(dst, in, ev, &ev.Runs[uint32(i)], k)
	}
	if in.Exact {
		applyPower(dst, len(dst), len(ev.Serving))
	} else {
		o.applyPowerByDepth(dst, len(ev.Serving))
	}
	o.bestFirst(dst)
	orders.Put(o)
	return dst
}

// appendMatch appends the replica of a run, scored but for its power; nothing
// if the run counts for nothing.
func appendMatch(dst []Candidate, in *Input, ev *Evidence, run *Run, k *Knobs) []Candidate {
	if uint(run.Replica) >= uint(len(ev.Serving)) {
		return dst // not of this view: without its name it is no answer
	}
	tokens := saturate(run.Tokens)
	if tokens == 0 && in.Chain() {
		return dst
	}
	r := &ev.Serving[run.Replica]
	fresh := freshness(ev.NowMS-run.SeenMS, in.TTLMS)
	return append(dst, Candidate{
		ReplicaID:     r.ID,
		MatchedTokens: tokens,
		HitProb:       fresh,
		Tier:          run.Tier,
		Score: float32(tokens) * fresh *
			pressureFactor(r, ev.NowMS, in.TTLMS, k.PressureWeight) *
			sloFactor(fresh, in.TTFTMS, k),
	})
}

// applyPower finishes the scores of candidates that all count as equally deep.
func applyPower(cands []Candidate, matched, serving int) {
	power := powerFactor(matched, serving)
	for i := range cands {
		cands[i].Score = finite(cands[i].Score * power)
	}
}

// applyPowerByDepth finishes the scores of chain matches: a replica shares its
// depth with those that matched as many tokens or more.
func (o *order) applyPowerByDepth(cands []Candidate, serving int) {
	o.tokens = o.tokens[:0]
	for i := range cands {
		o.tokens = append(o.tokens, cands[i].MatchedTokens)
	}
	slices.Sort(o.tokens)
	for i := range cands {
		shallower, _ := slices.BinarySearch(o.tokens, cands[i].MatchedTokens)
		applyPower(cands[i:i+1], len(cands)-shallower, serving)
	}
}
