package ranking

// Candidate is one replica of an answer.
type Candidate struct {
	ReplicaID string
	// Score orders the answer; finite, 0 or more.
	Score float32
	// MatchedTokens saturates at the largest int32.
	MatchedTokens int32
	// HitProb is the estimated probability that the hold is still there, 0–1.
	HitProb float32
	// Tier is the coldest of the matched blocks; TierNone claims nothing.
	Tier Tier
}

// Gate is what a policy says before the index is asked: true stops the lookup
// with the Reason.
func Gate(in *Input, p *Policy) (Reason, bool) {
	if in.PrefixTokens < p.MinimumPrefixTokens && !p.Affinity {
		return ReasonNoHint, true
	}
	return "", false
}

// Decide turns what the index found into an answer. It appends the replicas,
// best first, to dst[:0] and returns them.
func Decide(in *Input, ev *Evidence, p *Policy, k *Knobs, dst []Candidate) (Reason, []Candidate) {
	return ReasonNoHint, dst[:0]
}
