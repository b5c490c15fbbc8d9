package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// why says in sentences what decided the lookup, the cause first, then what to do.
func (x *explainer) why(r *explainReply) []string {
	switch r.StoppedAt {
	case "input":
		return x.whyRejected(r)
	case "policy":
		return []string{fmt.Sprintf("The CachePolicy of %s says requireChain: true, and the request has no valid chain. Have the gateway send block_hashes and as many block_token_counts.", cell(r.Tenant))}
	case "names":
		return []string{"The request does not name tenant, model and hash scheme; nothing is guessed from an empty name. Give all three."}
	case "gate":
		return []string{fmt.Sprintf("The prompt is shorter than minimumPrefixTokens %d and affinity is off: the index is not asked. Lower minimumPrefixTokens, or set affinityRouting: Enabled.", r.Policy.MinimumPrefixTokens)}
	}
	var out []string
	if !r.Steady {
		out = append(out, "The index changed each time while it was read: runs and scores below may be of two moments.")
	}
	switch ranking.Reason(r.Reason) {
	case ranking.ReasonPrefixMatch:
		out = append(out, r.whyMatch())
	case ranking.ReasonTenantHot:
		out = append(out, r.whyLapsed()...)
		out = append(out, fmt.Sprintf("Nobody holds this exact hash; %s serves the domain and reported a good hit rate lately. No cached tokens are claimed.", cell(r.Scores[0].ReplicaID)))
	default:
		lapsed := r.whyLapsed()
		out = append(out, lapsed...)
		out = append(out, r.whyFell()...)
		// Records under the lookup's own names prove the names right.
		if len(lapsed) == 0 {
			out = append(out, r.whyUnknown()...)
		}
		out = append(out, r.whyNoMatch()...)
	}
	out = append(out, r.whyElsewhere()...)
	out = append(out, r.whyAffinity()...)
	if budget := x.tightest(); r.Budget.TookUS > budget.Microseconds() {
		out = append(out, fmt.Sprintf("Reading the index took %s from here, more than the budget of %v: a pod that is as far from Redis answers TIMEOUT.", duration(float64(r.Budget.TookUS)), budget))
	}
	if r.Garbage > 0 {
		out = append(out, plural(r.Garbage, "value")+" of this partition could not be read and counted as held by nobody: lookupctl doctor tells which.")
	}
	return out
}

func (x *explainer) tightest() time.Duration {
	if x.policy.LookupTimeout > 0 {
		return min(x.policy.LookupTimeout, x.timeout)
	}
	return x.timeout
}

func (x *explainer) whyRejected(r *explainReply) []string {
	text := "The request was rejected as " + r.Input.Rejected + " before the index was asked"
	switch {
	case r.Input.Remedy != "":
		return []string{text + ": " + r.Input.Remedy + "."}
	case r.Input.Rejected == "no_full_block":
		return []string{fmt.Sprintf("%s: %s are fewer than one block of %d; only full blocks are indexed. Check that --engine-block-size is the engines' own.",
			text, plural(len(x.req.GetTokenIds()), "token id"), x.blockSize)}
	case r.Input.Rejected == "reserved_tenant":
		return []string{text + ": this tenant is set aside for probes, nothing is ever indexed for it."}
	}
	return []string{text + "."}
}

func (r *explainReply) whyMatch() string {
	top := &r.exp.Matches[0]
	text := fmt.Sprintf("%s holds %s of the prompt's tokens and has the best score.", cell(top.ReplicaID), tokensOf(top.MatchedTokens, r.input.PrefixTokens))
	return text + r.whyNotDeepest(top)
}

// whyNotDeepest says why the replica that matched most is not the first; "" if it is.
func (r *explainReply) whyNotDeepest(top *ranking.MatchTerms) string {
	deepest := top
	for i := range r.exp.Matches {
		if m := &r.exp.Matches[i]; m.MatchedTokens > deepest.MatchedTokens {
			deepest = m
		}
	}
	if deepest == top {
		return ""
	}
	return fmt.Sprintf(" %s matched more (%s tokens), but %s.", cell(deepest.ReplicaID), grouped(int64(deepest.MatchedTokens)), weakest(r, deepest))
}

func tokensOf(matched int32, of int64) string {
	if of <= 0 {
		return grouped(int64(matched))
	}
	return grouped(int64(matched)) + " of " + grouped(of)
}

// whyFell says what removed a match that was there.
func (r *explainReply) whyFell() []string {
	if r.exp == nil || len(r.exp.Matches) == 0 {
		return nil
	}
	top := &r.exp.Matches[0]
	who := cell(top.ReplicaID)
	switch top.Fate {
	case ranking.FateShort:
		return []string{fmt.Sprintf("%s matched %d tokens, but the prompt has %d tokens, fewer than minimumPrefixTokens %d.", who, top.MatchedTokens, r.input.PrefixTokens, r.Policy.MinimumPrefixTokens)}
	case ranking.FateTokenFloor:
		most := top.MatchedTokens
		for _, m := range r.exp.Matches {
			most = max(most, m.MatchedTokens)
		}
		text := fmt.Sprintf("No replica matched minimumMatchedTokens %d: the most is %d.", r.Policy.MinimumMatchedTokens, most)
		if top.Score < r.Policy.RoutingFloorScore {
			text += fmt.Sprintf(" Nor would score %s pass routingFloorScore %s: %s.", short(top.Score), short(r.Policy.RoutingFloorScore), weakest(r, top))
		}
		return []string{text}
	case ranking.FateScoreFloor:
		return []string{fmt.Sprintf("Score %s under routingFloorScore %s: %s.", short(top.Score), short(r.Policy.RoutingFloorScore), weakest(r, top)) + r.whyNotDeepest(top)}
	case ranking.FateNoTokens:
		return []string{"The request counts 0 tokens over the blocks that matched: have the gateway send real block_token_counts."}
	case ranking.FateStray, ranking.FateAnswer, ranking.FateNoStats, ranking.FateOldStats, ranking.FateColdCache:
	}
	return nil
}

// weakest names the factor that costs a match most.
func weakest(r *explainReply, m *ranking.MatchTerms) string {
	f := m.Factors
	switch least := min(f.Freshness, f.Pressure, f.Power); {
	case least >= 0.5:
		return fmt.Sprintf("it matched %d tokens, and no factor is low: the floor is too high for prompts of this length", m.MatchedTokens)
	case least == f.Power:
		if m.AsDeep >= r.exp.Serving {
			return fmt.Sprintf("hold shared by %d of %d replicas, so that it tells none apart (power 0)", m.AsDeep, r.exp.Serving)
		}
		return fmt.Sprintf("hold shared by %d of %d replicas (power %s)", m.AsDeep, r.exp.Serving, short(f.Power))
	case least == f.Pressure:
		return fmt.Sprintf("%s reported pressure %s %s ago, which keeps %s of its score (--pressure-weight %s)",
			cell(m.ReplicaID), short(m.ReportedPressure), ago(m.StatsAgeMS), short(f.Pressure), short(r.knobs.PressureWeight))
	default:
		return fmt.Sprintf("its oldest hold was last reported %s ago, near the evictionTTL of %s (freshness %s)", ago(m.AgeMS), r.Policy.EvictionTTL, short(f.Freshness))
	}
}

func (r *explainReply) whyUnknown() []string {
	switch {
	case r.Census == "index_empty":
		return []string{"The index holds nothing for anyone: producers have not reported since Redis started or was flushed. Look at the sidecars, and whether this is the Redis that they write to."}
	case ranking.Reason(r.Diagnosis) == ranking.ReasonUnknownTenant:
		return []string{fmt.Sprintf("The index holds something, but nothing for tenant %s: compare the tenant that the gateway sends with the sidecars' --tenant-id.", cell(r.Tenant))}
	case ranking.Reason(r.Diagnosis) == ranking.ReasonUnknownModel:
		return []string{fmt.Sprintf("Tenant %s holds something, but nothing for model %s: compare the model that the gateway sends with the sidecars' --model-id.", cell(r.Tenant), cell(r.Model))}
	case ranking.Reason(r.Diagnosis) == ranking.ReasonUnknownHashScheme:
		has := "none"
		if len(r.Schemes) > 0 {
			has = list(r.Schemes)
		}
		return []string{fmt.Sprintf("Model %s holds nothing under hash scheme %s; schemes known there: %s. Compare the scheme that the gateway sends with the sidecars' --hash-scheme.", cell(r.Model), cell(r.Scheme), has)}
	}
	return nil
}

func (r *explainReply) blockSize() string {
	if !r.Input.Exact && len(r.input.Tokens) > 0 {
		return strconv.Itoa(int(r.input.Tokens[0])) + " here"
	}
	return "unknown here"
}

func (r *explainReply) whyAffinity() []string {
	switch {
	case r.Reason == string(ranking.ReasonAffinityHint):
		return []string{fmt.Sprintf("Affinity gives the prompt seat %d of %d: %s. It claims no cache.", r.Affinity.Index+1, r.Affinity.Of, cell(r.Affinity.ReplicaID))}
	case r.Reason != string(ranking.ReasonNoHint):
		return nil
	}
	switch r.Affinity.Why {
	case string(ranking.NoSeatOff):
		return []string{fmt.Sprintf("affinityRouting is Disabled; Enabled, it would name %s.", cell(r.Affinity.ReplicaID))}
	case string(ranking.NoSeatServing):
		return []string{"Affinity has nobody to name: no replica serves the domain."}
	case string(ranking.NoSeatSeed):
		return []string{"Affinity has nothing to hash: the request carries no hash."}
	case "partial_evidence":
		return []string{"A shard of the index did not answer: nothing is concluded from what was not found, and affinity has no full serving set to choose from. lookupctl doctor tells which node is gone."}
	case "chain_fields_contradict":
		return []string{"Affinity is not given to a request whose block_hashes and block_token_counts contradict one another."}
	}
	return nil
}

func short(f float32) string { return strconv.FormatFloat(float64(f), 'g', 3, 32) }

// ago is an age for people: 31m20s, 1.2s.
func ago(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 0:
		return "0s"
	case d >= time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// list joins names, sorted, for a sentence.
func list(names []string) string {
	cells := make([]string, len(names))
	for i, n := range slices.Sorted(slices.Values(names)) {
		cells[i] = cell(n)
	}
	return strings.Join(cells, ", ")
}
