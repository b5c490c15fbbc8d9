package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"inferencecache.io/lookuptier/policies"
)

// highFloor is a routingFloorScore that shuts out matches of ordinary length.
const highFloor = 64

func gatherPolicies(dir string) *PolicyFacts {
	set, err := policies.Load(dir)
	f := &PolicyFacts{Dir: dir, Set: set, Err: err}
	if err != nil && !errors.As(err, &f.Problems) {
		f.Problems = nil
	}
	return f
}

func checkPolicies(f *Facts, out *findings) {
	p := f.Policies
	if p == nil {
		return
	}
	if p.Err != nil {
		var lines []string
		for _, problem := range p.Problems {
			lines = append(lines, problem.String())
		}
		if lines == nil {
			lines = []string{p.Err.Error()}
		}
		out.add(Fail, "policies.parse", p.Dir, "the policies cannot be loaded: a pod that starts with them exits, a running one keeps its last good set",
			"Mend the lines below; lookupctl policy check runs the same check.", lines...)
		return
	}
	out.ok("policies.parse", p.Dir, "%d tenants have a policy of their own", p.Set.Len())
	checkPolicyTenants(f, out)
	for _, tenant := range p.Set.Tenants() {
		policy := p.Set.For(tenant)
		if policy.EvictionTTL >= f.KeyTTL {
			out.add(Fail, "policies.ttl", fmt.Sprintf("tenant %q", tenant), fmt.Sprintf("evictionTTL %s is not below the key TTL of %s: pods refuse to start, or holds end before the policy says", ageText(policy.EvictionTTL), ageText(f.KeyTTL)),
				"Give all components a --key-ttl of at least "+ageText(2*policy.EvictionTTL)+", or shorten evictionTTL. If they run with another --key-ttl already, tell doctor with --key-ttl.")
		}
		if policy.RoutingFloorScore >= highFloor {
			out.add(Warn, "policies.floor", fmt.Sprintf("tenant %q", tenant), fmt.Sprintf("routingFloorScore %g drops every answer whose best match is worth fewer than %g fresh, undiscounted tokens", policy.RoutingFloorScore, policy.RoutingFloorScore),
				"A score is tokens × factors of at most 1 (2 for a tight SLO), so a floor above a typical prefix removes most matches. The default is 0.1; lookupctl explain shows what it removes.")
		}
		if policy.MinimumMatchedTokens >= 16*highFloor {
			out.add(Warn, "policies.floor", fmt.Sprintf("tenant %q", tenant), fmt.Sprintf("minimumMatchedTokens %d drops every replica that matched less", policy.MinimumMatchedTokens), "The default is 64: 4 blocks of 16. lookupctl explain shows what it removes.")
		}
	}
}

// checkPolicyTenants compares the policies' namespaces with the index's tenants.
func checkPolicyTenants(f *Facts, out *findings) {
	if f.Index == nil || f.Index.Catalog.Total == 0 {
		return
	}
	var holding []string
	for _, m := range f.models() {
		if !slices.Contains(holding, m.Tenant) {
			holding = append(holding, m.Tenant)
		}
	}
	var idle []string
	for _, tenant := range f.Policies.Set.Tenants() {
		if slices.Contains(holding, tenant) {
			continue
		}
		text := []string{fmt.Sprintf("%q holds nothing", tenant)}
		for _, other := range holding {
			if Spelling(other) == Spelling(tenant) {
				text = append(text, fmt.Sprintf("the index has %q", other))
			}
		}
		idle = append(idle, strings.Join(text, "; "))
	}
	if len(idle) > 0 {
		out.add(Warn, "policies.tenants", f.Policies.Dir, "policies for tenants that hold nothing: they have no effect",
			"A CachePolicy's namespace must be the tenant that sidecars report under (--tenant-id) and gateways ask for.", append(idle, "tenants that hold something: "+quoted(holding))...)
	}
}
