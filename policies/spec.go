package policies

import (
	"math"
	"regexp"
	"strconv"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// maxCount bounds token counts and milliseconds: what 32 bits hold, as a
// matched-token count does.
const maxCount = math.MaxInt32

// floorScore is the form of routingFloorScore. It is text so that every client
// of the Kubernetes API carries it without rounding.
var floorScore = regexp.MustCompile(`^(0|[1-9][0-9]{0,7})(\.[0-9]{1,6})?$`)

// spec overwrites the defaults in policy with what the document says.
func (p *parser) spec(doc *mapping, policy *ranking.Policy) {
	v, ok := doc.fields["spec"]
	if !ok {
		return
	}
	spec, ok := p.mapping(v.node, "spec", "evictionTTL", "minimumPrefixTokens", "minimumMatchedTokens",
		"routingFloorScore", "lookupTimeoutMs", "affinityRouting", "strategy", "eviction")
	if !ok {
		return
	}
	p.ttl(spec, policy)
	p.count(spec, "minimumPrefixTokens", &policy.MinimumPrefixTokens)
	p.count(spec, "minimumMatchedTokens", &policy.MinimumMatchedTokens)
	p.floor(spec, policy)
	var timeoutMS int64
	p.count(spec, "lookupTimeoutMs", &timeoutMS)
	policy.LookupTimeout = time.Duration(timeoutMS) * time.Millisecond

	affinity := "Enabled"
	p.choice(spec, "affinityRouting", &affinity, "Disabled")
	policy.Affinity = affinity == "Enabled"
	eviction := string(ranking.EvictionLRU)
	p.choice(spec, "eviction", &eviction, string(ranking.EvictionLFU))
	policy.Eviction = ranking.Eviction(eviction)

	p.strategy(spec, policy)
}

func (p *parser) ttl(spec *mapping, policy *ranking.Policy) {
	v, ok := spec.fields["evictionTTL"]
	if !ok {
		return
	}
	s, ok := text(v.node)
	ttl, err := time.ParseDuration(s)
	// The index counts milliseconds; less than one would make nothing fresh.
	if !ok || err != nil || ttl < time.Millisecond {
		p.add(v.line, "spec.evictionTTL", `is %s; it must be a duration of at least 1ms with its unit, such as "30m" or "1h30m"`, shown(v.node))
		return
	}
	policy.EvictionTTL, p.ttlLine = ttl, v.line
}

func (p *parser) count(spec *mapping, name string, into *int64) {
	v, ok := spec.fields[name]
	if !ok {
		return
	}
	n, ok := whole(v.node, maxCount)
	if !ok {
		p.add(v.line, "spec."+name, "is %s; it must be a whole number from 0 to %d, without quotes", shown(v.node), maxCount)
		return
	}
	*into = n
}

func (p *parser) floor(spec *mapping, policy *ranking.Policy) {
	v, ok := spec.fields["routingFloorScore"]
	if !ok {
		return
	}
	s, ok := text(v.node)
	if !ok || !floorScore.MatchString(s) {
		p.add(v.line, "spec.routingFloorScore", `is %s; it must be a quoted decimal number such as "0", "0.1" or "12.5", with at most 8 digits before the point and 6 after (%s)`,
			shown(v.node), floorScore)
		return
	}
	score, err := strconv.ParseFloat(s, 32)
	if err != nil { // the pattern leaves nothing that ParseFloat refuses
		p.add(v.line, "spec.routingFloorScore", "is %s: %s", shown(v.node), err)
		return
	}
	policy.RoutingFloorScore = float32(score)
}

// choice reads a field that has two allowed values, the default first.
func (p *parser) choice(spec *mapping, name string, into *string, other string) {
	v, ok := spec.fields[name]
	if !ok {
		return
	}
	s, ok := text(v.node)
	if !ok || s != *into && s != other {
		p.add(v.line, "spec."+name, "is %s; it must be %s (the default) or %s", shown(v.node), *into, other)
		return
	}
	*into = s
}

func (p *parser) strategy(spec *mapping, policy *ranking.Policy) {
	v, ok := spec.fields["strategy"]
	if !ok {
		return
	}
	m, ok := p.mapping(v.node, "spec.strategy", "enableChainMatching", "requireChain", "enableTenantHot")
	if !ok {
		return
	}
	p.flag(m, "enableChainMatching", &policy.ChainMatching)
	p.flag(m, "requireChain", &policy.RequireChain)
	p.flag(m, "enableTenantHot", &policy.TenantHot)
	if policy.RequireChain && !policy.ChainMatching {
		p.add(m.fields["requireChain"].line, "spec.strategy.requireChain",
			"is true while enableChainMatching is false, which would refuse every lookup; set requireChain to false or enableChainMatching to true")
	}
}

func (p *parser) flag(m *mapping, name string, into *bool) {
	v, ok := m.fields[name]
	if !ok {
		return
	}
	b, ok := truth(v.node)
	if !ok {
		p.add(v.line, "spec.strategy."+name, "is %s; it must be true or false, without quotes", shown(v.node))
		return
	}
	*into = b
}
