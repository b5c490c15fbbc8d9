package main

import (
	"context"
	"errors"
	"fmt"

	"inferencecache.io/lookuptier/ranking"
)

// explainReply is the JSON form of an explanation. Times are milliseconds of Redis' clock.
type explainReply struct {
	Redis   string       `json:"redis"`
	Shards  int          `json:"shards"`
	Tenant  string       `json:"tenant_id"`
	Model   string       `json:"model_id"`
	Scheme  string       `json:"hash_scheme"`
	Adapter string       `json:"adapter_id"`
	Reason  string       `json:"reason_code"`
	Scores  []score      `json:"replica_scores"`
	Why     []string     `json:"why"`
	Input   explainInput `json:"input"`
	Budget  explainTime  `json:"budget"`
	Policy  policyRow    `json:"policy"`
	// PolicyOrigin says where the policy comes from.
	PolicyOrigin string `json:"policy_origin"`
	// StoppedAt is the step that ended the lookup before the index was asked: input,
	// gate, or ""; then what follows is empty.
	StoppedAt string          `json:"stopped_at"`
	NowMS     int64           `json:"now_ms"`
	Census    string          `json:"census"`
	Serving   int             `json:"serving_replicas"`
	Schemes   []string        `json:"schemes_of_model"`
	Garbage   int             `json:"unreadable_values"`
	Steady    bool            `json:"steady"`
	Runs      []trace         `json:"runs"`
	Matches   []explainMatch  `json:"matches"`
	Hot       []explainHot    `json:"tenant_hot"`
	Diagnosis string          `json:"diagnosis"`
	Elsewhere []place         `json:"elsewhere"`
	Affinity  explainSeat     `json:"affinity"`
	WhatIfs   []explainWhatIf `json:"what_if"`
	Pod       *podAnswer      `json:"pod"`
	exp       *ranking.Explanation
	knobs     ranking.Knobs
	input     *ranking.Input
	ifs       []ranking.WhatIf
}

type explainInput struct {
	Source   string `json:"source"`
	Exact    bool   `json:"exact"`
	Blocks   int    `json:"blocks"`
	Tokens   int64  `json:"prefix_tokens"`
	TTFTMS   int32  `json:"slo_ttft_ms"`
	Rejected string `json:"rejected"`
	Remedy   string `json:"remedy"`
}

type explainTime struct {
	PodMS    float64 `json:"lookup_timeout_ms"`
	PolicyMS int64   `json:"policy_lookup_timeout_ms"`
	// TookUS is what reading the index took from here.
	TookUS int64 `json:"index_us"`
}

type explainFactors struct {
	Freshness float32 `json:"freshness"`
	Pressure  float32 `json:"pressure"`
	SLO       float32 `json:"slo"`
	Power     float32 `json:"power"`
}

type explainMatch struct {
	ReplicaID  string         `json:"replica_id"`
	Tokens     int32          `json:"matched_tokens"`
	Score      float32        `json:"score"`
	Factors    explainFactors `json:"factors"`
	AgeMS      int64          `json:"age_ms"`
	StatsAgeMS int64          `json:"stats_age_ms"` // -1 = no stats
	Pressure   float32        `json:"reported_pressure"`
	AsDeep     int            `json:"replicas_as_deep"`
	Fate       string         `json:"fate"`
}

type explainHot struct {
	ReplicaID  string         `json:"replica_id"`
	HitRate    float32        `json:"hit_rate"`
	Score      float32        `json:"score"`
	Factors    explainFactors `json:"factors"`
	StatsAgeMS int64          `json:"stats_age_ms"`
	Fate       string         `json:"fate"`
}

type explainSeat struct {
	Eligible  bool   `json:"eligible"`
	Why       string `json:"why_not"`
	Index     int    `json:"seat"`
	Of        int    `json:"seats"`
	ReplicaID string `json:"replica_id"`
}

type explainWhatIf struct {
	Setting string  `json:"setting"`
	From    string  `json:"from"`
	To      string  `json:"to"`
	Reason  string  `json:"reason_code"`
	Replica string  `json:"replica_id"`
	Score   float32 `json:"score"`
}

// attempts bounds how often a decision is made again because the index changed under it.
const attempts = 4

// explain decides, traces, and decides again until both saw the same index.
func (x *explainer) explain(ctx context.Context) (*explainReply, error) {
	for attempt := 1; ; attempt++ {
		out, err := x.once(ctx)
		if err != nil || out.Steady || attempt == attempts {
			return out, err
		}
	}
}

func (x *explainer) once(ctx context.Context) (*explainReply, error) {
	d, err := x.decide(ctx)
	if err != nil {
		return nil, err
	}
	if !d.asked {
		out := x.newReply(d)
		if err := x.unasked(d, out); err != nil {
			return nil, err
		}
		out.Why = x.why(out)
		return out, nil
	}
	in := x.input(d)
	e, ifs, contradicts, err := x.explainRanking(d, in)
	if err != nil {
		return nil, err
	}
	o, err := x.observe(ctx, d)
	if err != nil {
		return nil, err
	}
	if len(e.Matches) == 0 {
		if o.elsewhere, err = x.elsewhere(ctx, &in.Query); err != nil {
			return nil, fmt.Errorf("searching other names: %w", err)
		}
	}
	out := x.assemble(d, in, e, ifs, o)
	if contradicts {
		out.Affinity.Eligible, out.Affinity.Why = false, "chain_fields_contradict"
	}
	out.Why = x.why(out)
	return out, nil
}

// assemble puts together what was decided and what was seen.
func (x *explainer) assemble(d *decision, in *ranking.Input, e *ranking.Explanation, ifs []ranking.WhatIf, o *observed) *explainReply {
	out := x.newReply(d)
	out.input, out.exp, out.ifs = in, e, ifs
	out.Input.Exact, out.Input.Blocks, out.Input.Tokens = in.Exact, len(in.Hashes), in.PrefixTokens
	out.NowMS, out.Serving, out.Garbage, out.Steady = d.ev.NowMS, len(d.ev.Serving), o.garbage, o.steady
	out.Schemes, out.Runs = append(out.Schemes, o.schemes...), append(out.Runs, o.traces...)
	out.Elsewhere = append(out.Elsewhere, o.elsewhere...)
	if out.Serving == 0 {
		out.Census = censusText(d.ev.Census)
	}
	out.fill(e, ifs)
	return out
}

func (x *explainer) newReply(d *decision) *explainReply {
	out := &explainReply{
		Shards: x.shards, Tenant: x.req.GetTenantId(), Model: x.req.GetModelId(), Scheme: x.req.GetHashScheme(), Adapter: x.req.GetAdapterId(),
		Reason: d.reply.GetReasonCode(), Scores: replyOf(x.req, d.reply, 0).Scores,
		Input:  explainInput{Source: d.source, TTFTMS: x.req.GetSlo().GetTtftMs(), Rejected: d.rejected, Remedy: d.remedy},
		Budget: explainTime{PodMS: float64(x.timeout.Microseconds()) / 1000, PolicyMS: x.policy.LookupTimeout.Milliseconds(), TookUS: d.took.Microseconds()},
		Policy: rowOf(x.req.GetTenantId(), &x.policy), PolicyOrigin: x.origin, Steady: true, knobs: x.knobs,
		Schemes: []string{}, Runs: []trace{}, Matches: []explainMatch{}, Hot: []explainHot{}, Elsewhere: []place{}, WhatIfs: []explainWhatIf{},
	}
	return out
}

// unasked says where a lookup ended without the index.
func (x *explainer) unasked(d *decision, out *explainReply) error {
	switch {
	case d.rejected != "":
		out.StoppedAt = "input"
	case out.Reason == string(ranking.ReasonPolicyRequiresChain):
		out.StoppedAt = "policy"
	case x.req.GetTenantId() == "" || x.req.GetModelId() == "" || x.req.GetHashScheme() == "":
		out.StoppedAt = "names"
	case out.Reason == string(ranking.ReasonNoHint):
		out.StoppedAt = "gate"
	default:
		return errors.New("the lookup ended in " + out.Reason + " before the index was asked; give it longer with --timeout")
	}
	return nil
}

func (r *explainReply) fill(e *ranking.Explanation, ifs []ranking.WhatIf) {
	factors := func(f ranking.Factors) explainFactors {
		return explainFactors{Freshness: f.Freshness, Pressure: f.Pressure, SLO: f.SLO, Power: f.Power}
	}
	for _, m := range e.Matches {
		r.Matches = append(r.Matches, explainMatch{
			ReplicaID: m.ReplicaID, Tokens: m.MatchedTokens, Score: m.Score, Factors: factors(m.Factors), AgeMS: m.AgeMS,
			StatsAgeMS: m.StatsAgeMS, Pressure: m.ReportedPressure, AsDeep: m.AsDeep, Fate: string(m.Fate),
		})
	}
	for _, h := range e.Hot {
		r.Hot = append(r.Hot, explainHot{
			ReplicaID: h.ReplicaID, HitRate: h.HitRate, Score: h.Score, Factors: factors(h.Factors), StatsAgeMS: h.StatsAgeMS, Fate: string(h.Fate),
		})
	}
	for _, w := range ifs {
		r.WhatIfs = append(r.WhatIfs, explainWhatIf{
			Setting: w.Setting, From: w.From, To: w.To, Reason: string(w.Reason), Replica: w.Top.ReplicaID, Score: w.Top.Score,
		})
	}
	r.Diagnosis = string(e.Diagnosis)
	r.Affinity = explainSeat{Eligible: e.Seat.OK, Why: string(e.Seat.Why), Index: e.Seat.Index, Of: e.Seat.Of, ReplicaID: e.Seat.ReplicaID}
}

func censusText(c ranking.Census) string {
	switch c {
	case ranking.CensusIndexEmpty:
		return "index_empty"
	case ranking.CensusTenantEmpty:
		return "tenant_empty"
	case ranking.CensusModelEmpty:
		return "model_empty"
	case ranking.CensusSchemeEmpty:
		return "scheme_empty"
	default:
		return "unknown: a shard did not answer"
	}
}
