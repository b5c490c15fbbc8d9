package main

import (
	"fmt"
	"strings"

	"inferencecache.io/lookuptier/ranking"
)

// lapsed counts the replicas that have records under the lookup's own tenant, model
// and scheme, but let the lease lapse: those that would match, and all.
func (r *explainReply) lapsed() (matching, all int) {
	for _, t := range r.Runs {
		if t.Standing != standingLapsed {
			continue
		}
		if all++; t.Blocks > 0 {
			matching++
		}
	}
	return matching, all
}

// whyLapsed says that a lookup without a match lacks replicas whose leases lapsed. It
// is nil while others serve and none of the lapsed would match: no lapse is the cause then.
func (r *explainReply) whyLapsed() []string {
	if r.exp == nil || len(r.exp.Matches) > 0 {
		return nil
	}
	const remedy = ": their sidecars are down or cut off from Redis. Restart them; what they reported is kept for minutes."
	switch matching, all := r.lapsed(); {
	case matching > 0:
		return []string{plural(matching, "replica") + " would match, but let the lease lapse and so serve nothing" + remedy}
	case all > 0 && r.Serving == 0:
		return []string{fmt.Sprintf("Tenant, model and hash scheme %s are right: the index has records of %s there, but none whose lease still runs, so that nothing serves the domain%s", cell(r.Scheme), plural(all, "replica"), remedy)}
	}
	return nil
}

// whyNoMatch says why nobody holds the first block, when somebody serves the domain.
func (r *explainReply) whyNoMatch() (out []string) {
	if r.exp == nil || len(r.exp.Matches) > 0 {
		return nil
	}
	expired, retired, least := 0, 0, int64(0)
	for _, t := range r.Runs {
		if t.Standing == standingServes && t.Lost.At == 0 && t.Lost.Why == lostExpired {
			if expired++; least == 0 || t.Lost.AgeMS < least {
				least = t.Lost.AgeMS
			}
		}
		if t.Lost.At == 0 {
			retired = max(retired, t.Lost.Retired)
		}
	}
	if expired > 0 {
		out = append(out, fmt.Sprintf("%s held block 0 and did not report it again within the evictionTTL of %s (the youngest hold is %s old): check that sidecars refresh, or lengthen evictionTTL.", plural(expired, "replica"), r.Policy.EvictionTTL, ago(least)))
	}
	if retired > 0 {
		out = append(out, "Block 0 has records of a cleared generation: its engine restarted or was cleared since, and has not reported it again.")
	}
	if matching, _ := r.lapsed(); matching == 0 && len(out) == 0 && r.Serving > 0 {
		what := "the chain's first block"
		if r.Input.Exact {
			what = "the hash"
		}
		out = append(out, fmt.Sprintf("No replica that serves the domain holds %s: the prompt is new to it, or gateway and sidecars hash differently (block size %s, token ids, adapter).", what, r.blockSize()))
	}
	for _, h := range r.exp.Hot {
		if h.Fate != ranking.FateAnswer && h.Fate != ranking.FateShort {
			out = append(out, "TENANT_HOT found nobody warm: see the table.")
			break
		}
	}
	return out
}

func (r *explainReply) whyElsewhere() (out []string) {
	matching, _ := r.lapsed()
	lapse := len(r.whyLapsed()) > 0
	for _, p := range r.Elsewhere {
		// A lapse proves tenant, model and scheme right, and the adapter too if the block stands there.
		if lapse && (matching > 0 || p.Tenant != r.Tenant || p.Model != r.Model || p.Scheme != r.Scheme) {
			continue
		}
		var names []string
		for _, d := range []struct{ name, has, asked string }{
			{"tenant", p.Tenant, r.Tenant}, {"model", p.Model, r.Model}, {"hash scheme", p.Scheme, r.Scheme}, {"adapter", p.Adapter, r.Adapter},
		} {
			if d.has != d.asked {
				names = append(names, fmt.Sprintf("%s %q instead of %q", d.name, d.has, d.asked))
			}
		}
		differs := strings.Join(names, ", ")
		switch {
		case p.Has:
			out = append(out, "The first block is held under other names: "+differs+". One side has the name wrong.")
		default:
			out = append(out, "The index has names that are spelt almost alike: "+differs+". One side has the name wrong.")
		}
	}
	return out
}
