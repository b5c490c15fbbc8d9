package ranking

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// WhatIf is what Decide answers to the same evidence after one change.
type WhatIf struct {
	// Setting is the policy's field or the pod's flag, as an operator writes it.
	Setting string
	// From is what it is now, To what it was changed to.
	From, To string
	Reason   Reason
	// Top is the first candidate; zero if there is none.
	Top Candidate
}

// WhatIfs tries the settings that decide over hints, one at a time, and returns those
// that would have changed the reason or the first replica. Decide itself judges each.
func WhatIfs(in *Input, ev *Evidence, p *Policy, k *Knobs) []WhatIf {
	reason, candidates := Decide(in, ev, p, k, nil)
	var out []WhatIf
	try := func(setting, from, to string, change func(*Policy, *Knobs)) {
		if from == to {
			return
		}
		otherPolicy, otherKnobs := *p, *k
		change(&otherPolicy, &otherKnobs)
		r, c := Decide(in, ev, &otherPolicy, &otherKnobs, nil)
		if r == reason && topOf(c).ReplicaID == topOf(candidates).ReplicaID {
			return
		}
		out = append(out, WhatIf{Setting: setting, From: from, To: to, Reason: r, Top: topOf(c)})
	}
	number := func(f float32) string { return strconv.FormatFloat(float64(f), 'g', -1, 32) }
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }

	try("minimumPrefixTokens", whole(p.MinimumPrefixTokens), "0", func(p *Policy, _ *Knobs) { p.MinimumPrefixTokens = 0 })
	try("minimumMatchedTokens", whole(p.MinimumMatchedTokens), "0", func(p *Policy, _ *Knobs) { p.MinimumMatchedTokens = 0 })
	try("routingFloorScore", number(p.RoutingFloorScore), "0", func(p *Policy, _ *Knobs) { p.RoutingFloorScore = 0 })
	if len(out) == 0 && p.MinimumMatchedTokens > 0 && p.RoutingFloorScore > 0 {
		try("minimumMatchedTokens and routingFloorScore", whole(p.MinimumMatchedTokens)+" and "+number(p.RoutingFloorScore), "0 and 0",
			func(p *Policy, _ *Knobs) { p.MinimumMatchedTokens, p.RoutingFloorScore = 0, 0 })
	}
	// What gives more hints, never what gives fewer: that everybody knows.
	try("affinityRouting", onWord(p.Affinity, "Enabled", "Disabled"), "Enabled", func(p *Policy, _ *Knobs) { p.Affinity = true })
	try("strategy.enableTenantHot", onWord(p.TenantHot, "true", "false"), "true", func(p *Policy, _ *Knobs) { p.TenantHot = true })
	try("--pressure-weight", number(k.PressureWeight), "0", func(_ *Policy, k *Knobs) { k.PressureWeight = 0 })
	try("--slo-tight-ttft-ms", whole(int64(k.SLOTightTTFTMS)), "0", func(_ *Policy, k *Knobs) { k.SLOTightTTFTMS = 0 })
	try("--tenant-hot-min-hit-rate", number(k.TenantHotMinHitRate), "0", func(_ *Policy, k *Knobs) { k.TenantHotMinHitRate = 0 })
	try("--tenant-hot-max-age", k.TenantHotMaxAge.String(), "unlimited",
		func(_ *Policy, k *Knobs) { k.TenantHotMaxAge = time.Duration(math.MaxInt64) })
	return out
}

func topOf(c []Candidate) Candidate {
	if len(c) == 0 {
		return Candidate{}
	}
	return c[0]
}

func onWord(on bool, yes, no string) string {
	if on {
		return yes
	}
	return no
}

// String is the change and its outcome in one line.
func (w WhatIf) String() string {
	if w.Top.ReplicaID == "" {
		return fmt.Sprintf("%s %s instead of %s: %s", w.Setting, w.To, w.From, w.Reason)
	}
	return fmt.Sprintf("%s %s instead of %s: %s, %q first with score %.3f", w.Setting, w.To, w.From, w.Reason, w.Top.ReplicaID, w.Top.Score)
}
