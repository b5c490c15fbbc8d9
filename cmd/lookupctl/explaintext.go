package main

import (
	"fmt"
	"strconv"
	"strings"

	"inferencecache.io/lookuptier/ranking"
)

// shown is how many rows a table has without --all.
const shown = 20

// write prints the explanation for people: the outcome, each step, why, and what would
// have to change.
func (r *explainReply) write(s *session, all bool) {
	outcome := r.Reason
	if len(r.Scores) > 0 {
		outcome += ": " + cell(r.Scores[0].ReplicaID)
		if n := len(r.Scores) - 1; n > 0 {
			outcome += " and " + plural(n, "other")
		}
	}
	fmt.Fprintln(s.out, wrap(outcome, s.width))
	for _, line := range r.Why {
		fmt.Fprintln(s.out, wrap("- "+line, s.width))
	}
	if len(r.WhatIfs) > 0 {
		fmt.Fprintln(s.out, "\nWhat would change it:")
		for _, w := range r.ifs {
			fmt.Fprintln(s.out, wrap("- "+printable(w.String()), s.width))
		}
	}
	if r.Pod != nil {
		r.Pod.write(s)
	}
	fmt.Fprintln(s.out, "\nStep by step:")
	step := func(name, format string, args ...any) {
		fmt.Fprintln(s.out, wrap(fmt.Sprintf("%-10s %s", name, fmt.Sprintf(format, args...)), s.width))
	}
	step("input", "%s", r.inputText())
	step("budget", "%s", r.budgetText())
	step("policy", "%s", r.policyText())
	if r.StoppedAt != "" {
		step("stopped", "at %s: the index was not asked", r.StoppedAt)
		return
	}
	step("index", "%s", r.indexText())
	r.writeRuns(s, all)
	r.writeMatches(s, all)
	r.writeHot(s, all)
	if len(r.Matches) == 0 {
		diagnosis := "no fault of a name is certain"
		if r.Diagnosis != "" {
			diagnosis = r.Diagnosis
		}
		step("diagnosis", "%s", diagnosis)
	}
	step("affinity", "%s", r.seatText())
}

func (r *explainReply) inputText() string {
	in := &r.Input
	text := in.Source
	if in.Source == "" {
		text = "not looked at"
	}
	switch {
	case in.Rejected != "":
		text += ", rejected as " + in.Rejected
	case r.StoppedAt == "" && in.Exact:
		text += ": one exact hash for " + plural(int(in.Tokens), "token")
	case r.StoppedAt == "":
		text += fmt.Sprintf(": %s, %s", plural(in.Blocks, "block"), plural(int(in.Tokens), "token"))
	}
	text += fmt.Sprintf("; tenant %s, model %s, scheme %s, adapter %s", cell(r.Tenant), cell(r.Model), cell(r.Scheme), cell(r.Adapter))
	if in.TTFTMS > 0 {
		tight := "not tight"
		if in.TTFTMS < r.knobs.SLOTightTTFTMS {
			tight = "tight"
		}
		text += fmt.Sprintf("; first token wanted in %d ms, %s (--slo-tight-ttft-ms %d)", in.TTFTMS, tight, r.knobs.SLOTightTTFTMS)
	}
	return text
}

func (r *explainReply) budgetText() string {
	text := fmt.Sprintf("--lookup-timeout %g ms", r.Budget.PodMS)
	if r.Budget.PolicyMS > 0 {
		text += fmt.Sprintf(", lookupTimeoutMs %d", r.Budget.PolicyMS)
	}
	if r.StoppedAt == "" {
		text += fmt.Sprintf("; reading the index took %s from here", duration(float64(r.Budget.TookUS)))
	}
	return text
}

func (r *explainReply) policyText() string {
	p := &r.Policy
	return fmt.Sprintf("%s: TTL %s, min prefix %d, min matched %d, floor %s, affinity %s, chains %s%s, tenant hot %s",
		r.PolicyOrigin, p.EvictionTTL, p.MinimumPrefixTokens, p.MinimumMatchedTokens, short(p.RoutingFloorScore), onOff(p.Affinity),
		onOff(p.ChainMatching), map[bool]string{true: " and required"}[p.RequireChain], onOff(p.TenantHot))
}

func (r *explainReply) indexText() string {
	text := fmt.Sprintf("%s, %s: %s serve the domain", printable(r.Redis), plural(r.Shards, "shard"), plural(r.Serving, "replica"))
	if r.Serving == 1 {
		text = strings.Replace(text, "1 replica serve", "1 replica serves", 1)
	}
	if len(r.Schemes) > 0 {
		text += "; schemes of the model: " + list(r.Schemes)
	}
	if r.Census != "" {
		text += "; census: " + r.Census
	}
	return text
}

func (r *explainReply) writeRuns(s *session, all bool) {
	if len(r.Runs) == 0 {
		return
	}
	t := table{header: []string{"RUN OF", "BLOCKS", "TOKENS", "OLDEST", "TIER", "THEN"}}
	for i := range limit(len(r.Runs), all) {
		run := &r.Runs[i]
		blocks, oldest := "none", "-"
		if run.Blocks > 0 {
			blocks, oldest = blockRange(0, run.Blocks-1), ago(run.OldestMS)
		}
		t.add(cell(run.ReplicaID), blocks, grouped(run.Tokens), oldest, run.Tier, run.then(r.Input.Exact))
	}
	fmt.Fprintln(s.out)
	t.write(s.out, s.width)
	more(s, len(r.Runs), all)
}

// then says where a run was lost, and what became of the replica.
func (t *trace) then(exact bool) string {
	switch {
	case t.Standing == standingNone:
		return "serves nothing: no live hold in this scheme"
	case t.Standing == standingLapsed:
		return fmt.Sprintf("serves nothing: lease lapsed %s ago", ago(-*t.LeaseMS))
	case t.Lost.Why == lostOutside && exact:
		return "held"
	case t.Lost.Why == lostOutside:
		return "held to the end of the chain"
	}
	text := fmt.Sprintf("lost at %d: %s", t.Lost.At, t.Lost.Why)
	if exact {
		text = t.Lost.Why
	}
	if t.Lost.Why == lostExpired {
		text += fmt.Sprintf(", last reported %s ago", ago(t.Lost.AgeMS))
	}
	switch {
	case t.Lost.Others == 1:
		text += "; 1 other holds it"
	case t.Lost.Others > 1:
		text += fmt.Sprintf("; %d others hold it", t.Lost.Others)
	}
	if t.Lost.Retired > 0 {
		text += "; " + plural(t.Lost.Retired, "retired record")
	}
	if t.Lost.AgainAt >= 0 {
		text += fmt.Sprintf("; held again at %d", t.Lost.AgainAt)
	}
	return text
}

func (r *explainReply) writeMatches(s *session, all bool) {
	if len(r.Matches) == 0 {
		return
	}
	t := table{header: []string{"MATCH", "TOKENS", "× FRESHNESS", "× PRESSURE", "× SLO", "× POWER", "= SCORE", "FATE"}}
	for i := range limit(len(r.Matches), all) {
		m := &r.exp.Matches[i]
		pressure := short(m.Factors.Pressure)
		if m.StatsAgeMS < 0 {
			pressure += " (no stats)"
		}
		t.add(cell(m.ReplicaID), grouped(int64(m.MatchedTokens)), short(m.Factors.Freshness), pressure, short(m.Factors.SLO),
			fmt.Sprintf("%s (%d of %d)", short(m.Factors.Power), m.AsDeep, r.exp.Serving), decimal(m.Score), r.fateText(m.Fate))
	}
	fmt.Fprintln(s.out)
	t.write(s.out, s.width)
	more(s, len(r.Matches), all)
	fmt.Fprintln(s.out)
}

func (r *explainReply) writeHot(s *session, all bool) {
	if len(r.Hot) == 0 {
		if len(r.Matches) == 0 && len(r.Runs) > 0 {
			fmt.Fprintln(s.out)
		}
		return
	}
	t := table{header: []string{"TENANT_HOT", "HIT RATE", "× RECENCY", "× PRESSURE", "× SLO", "= SCORE", "STATS", "FATE"}}
	for i := range limit(len(r.Hot), all) {
		h := &r.exp.Hot[i]
		age := "never"
		if h.StatsAgeMS >= 0 {
			age = ago(h.StatsAgeMS) + " ago"
		}
		t.add(cell(h.ReplicaID), decimal(h.HitRate), short(h.Factors.Freshness), short(h.Factors.Pressure), short(h.Factors.SLO), decimal(h.Score), age, r.fateText(h.Fate))
	}
	fmt.Fprintln(s.out)
	t.write(s.out, s.width)
	more(s, len(r.Hot), all)
	fmt.Fprintln(s.out)
}

func (r *explainReply) fateText(f ranking.Fate) string {
	switch f {
	case ranking.FateAnswer:
		return "in the answer"
	case ranking.FateNoTokens:
		return "0 tokens counted"
	case ranking.FateStray:
		return "serves nothing"
	case ranking.FateShort:
		return fmt.Sprintf("prompt below minimumPrefixTokens %d", r.Policy.MinimumPrefixTokens)
	case ranking.FateTokenFloor:
		return fmt.Sprintf("below minimumMatchedTokens %d", r.Policy.MinimumMatchedTokens)
	case ranking.FateScoreFloor:
		return "best score below routingFloorScore " + short(r.Policy.RoutingFloorScore)
	case ranking.FateNoStats:
		return "never reported stats"
	case ranking.FateOldStats:
		return "stats older than --tenant-hot-max-age " + r.knobs.TenantHotMaxAge.String()
	case ranking.FateColdCache:
		return "below --tenant-hot-min-hit-rate " + short(r.knobs.TenantHotMinHitRate)
	default:
		return string(f)
	}
}

func (r *explainReply) seatText() string {
	a := &r.Affinity
	switch {
	case a.ReplicaID != "" && a.Eligible:
		text := fmt.Sprintf("the prompt's hash falls on seat %d of %d, %s", a.Index+1, a.Of, cell(a.ReplicaID))
		if r.Reason != string(ranking.ReasonAffinityHint) {
			text += "; not needed"
		}
		return text
	case a.Why == string(ranking.NoSeatOff):
		return "off by policy; it would be " + cell(a.ReplicaID)
	default:
		return "nobody: " + a.Why
	}
}

func blockRange(from, to int) string {
	if from == to {
		return strconv.Itoa(from)
	}
	return fmt.Sprintf("%d–%d", from, to)
}

func limit(n int, all bool) int {
	if all {
		return n
	}
	return min(n, shown)
}

func more(s *session, n int, all bool) {
	if !all && n > shown {
		fmt.Fprintf(s.out, "and %s more; --all lists them\n", grouped(int64(n-shown)))
	}
}
