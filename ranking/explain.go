package ranking

// Explanation is one decision with its working: what Decide answers, and what each
// replica had and lost on the way there.
type Explanation struct {
	// Reason and Candidates are Decide's own.
	Reason     Reason
	Candidates []Candidate
	// Keyed is Input.Keyed; without it nothing else was looked at.
	Keyed bool
	// Partial is Evidence.Partial: only matches count.
	Partial bool
	// Serving is the size of the serving set.
	Serving int
	// Short: the prompt is below the policy's MinimumPrefixTokens.
	Short bool
	// Matches has every run of the evidence, best first.
	Matches []MatchTerms
	// HotAsked: nothing matched an exact hash and the policy allows TENANT_HOT, so that
	// every serving replica stands in Hot, best first, then by id.
	HotAsked bool
	Hot      []HotTerms
	// Diagnosis is the UNKNOWN_… code that was found; "" = none.
	Diagnosis Reason
	// Seat is what affinity picks, or would pick if it came to that.
	Seat Seat
}

// Fate is what became of a replica that could have been part of the answer.
type Fate string

const (
	// FateAnswer: it is part of the answer.
	FateAnswer Fate = "answer"
	// FateNoTokens: the request counts no tokens over the run that it matched.
	FateNoTokens Fate = "no_tokens"
	// FateStray: the run names nobody of the serving set.
	FateStray Fate = "stray"
	// FateShort: the prompt is below MinimumPrefixTokens.
	FateShort Fate = "below_minimum_prefix_tokens"
	// FateTokenFloor: it matched fewer tokens than MinimumMatchedTokens.
	FateTokenFloor Fate = "below_minimum_matched_tokens"
	// FateScoreFloor: the best score is below RoutingFloorScore, which drops the whole answer.
	FateScoreFloor Fate = "below_routing_floor_score"
	// FateNoStats: it never reported stats, so nothing is known of its warmth.
	FateNoStats Fate = "no_stats"
	// FateOldStats: its stats are TenantHotMaxAge old or older.
	FateOldStats Fate = "old_stats"
	// FateColdCache: its hit rate is below TenantHotMinHitRate.
	FateColdCache Fate = "low_hit_rate"
)

// Factors of a score; each is what score.go computed.
type Factors struct {
	// Freshness of a match, recency of the stats of TENANT_HOT.
	Freshness float32
	Pressure  float32
	SLO       float32
	// Power is 1 where it does not apply.
	Power float32
}

// MatchTerms is how one run came to its score: tokens × the factors.
type MatchTerms struct {
	// Candidate is as it would stand in the answer, before the floors.
	Candidate
	Run     Run
	Factors Factors
	// AgeMS is the age of the oldest hold of the run; StatsAgeMS that of the replica's
	// stats, -1 if it never reported any.
	AgeMS, StatsAgeMS int64
	// ReportedPressure is the replica's, whether it counts or not.
	ReportedPressure float32
	// AsDeep is how many replicas matched at least as much, this one included.
	AsDeep int
	Fate   Fate
}

// HotTerms is how one serving replica came to its TENANT_HOT score, or to none.
type HotTerms struct {
	Candidate
	Factors    Factors
	HitRate    float32
	StatsAgeMS int64 // -1 = never reported
	Fate       Fate
}

// Seat is a replica that the hash of a prompt falls on.
type Seat struct {
	// OK: there is one. If not, Why says what is missing.
	OK        bool
	Why       NoSeat
	Index, Of int
	ReplicaID string
}

// NoSeat is why affinity can name nobody.
type NoSeat string

const (
	// NoSeatOff: the policy has Affinity off. Seat still names who it would be.
	NoSeatOff NoSeat = "affinity_off"
	// NoSeatServing: no replica serves the domain.
	NoSeatServing NoSeat = "nobody_serves"
	// NoSeatSeed: the request carries nothing to hash.
	NoSeatSeed NoSeat = "no_seed"
	// NoSeatPartial: the evidence is partial, and with it the serving set.
	NoSeatPartial NoSeat = "partial_evidence"
)

// Explain is Decide with its working. The answer in it is that of Decide, and every
// number is computed by the functions that Decide calls.
func Explain(in *Input, ev *Evidence, p *Policy, k *Knobs) *Explanation {
	e := &Explanation{Keyed: in.Keyed(), Partial: ev.Partial, Serving: len(ev.Serving), Short: tooShort(in, p)}
	e.Reason, e.Candidates = Decide(in, ev, p, k, nil)
	if !e.Keyed {
		return e
	}
	scored := appendMatches(nil, in, ev, k)
	e.explainMatches(in, ev, k, scored)
	e.judgeMatches(p, scored)
	if len(scored) == 0 && in.Exact && p.TenantHot && !ev.Partial {
		e.explainHot(in, ev, k)
	}
	if len(scored) == 0 && !ev.Partial && !hasFate(e.Hot, FateAnswer, FateShort) {
		e.Diagnosis, _ = diagnose(ev)
	}
	e.Seat = seatOf(in, ev, p)
	return e
}

func seatOf(in *Input, ev *Evidence, p *Policy) Seat {
	at, ok := affinitySeat(in, len(ev.Serving))
	switch {
	case ev.Partial:
		return Seat{Why: NoSeatPartial, Of: len(ev.Serving)}
	case len(ev.Serving) == 0:
		return Seat{Why: NoSeatServing}
	case !ok:
		return Seat{Why: NoSeatSeed, Of: len(ev.Serving)}
	}
	s := Seat{OK: true, Index: at, Of: len(ev.Serving), ReplicaID: ev.Serving[at].ID}
	if !p.Affinity {
		s.OK, s.Why = false, NoSeatOff
	}
	return s
}
