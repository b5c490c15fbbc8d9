// Package policies reads CachePolicy documents: what each tenant wants of its
// lookups. A Set is what a directory of them says; a Watcher keeps one up to date.
package policies

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// Set is an immutable snapshot of every tenant's policy. The zero value and nil
// have no policy, so that every tenant gets the default.
type Set struct {
	byTenant map[string]*ranking.Policy
	maxTTL   time.Duration // over byTenant; 0 when empty
	ttls     map[string]origin
}

var defaultPolicy = ranking.DefaultPolicy()

// For returns the tenant's policy, the default if it has none; never nil. All
// callers share it: do not change it.
func (s *Set) For(tenant string) *ranking.Policy {
	if s != nil {
		if p, ok := s.byTenant[tenant]; ok {
			return p
		}
	}
	return &defaultPolicy
}

// MaxTTL is the longest evictionTTL that any tenant can have under the set, the
// default's included. What the index keeps must outlive it.
func (s *Set) MaxTTL() time.Duration {
	if s == nil {
		return defaultPolicy.EvictionTTL
	}
	return max(s.maxTTL, defaultPolicy.EvictionTTL)
}

// Within checks that the index keeps holds for longer than every policy of the set
// counts them as fresh: Redis forgets what was not reported for keyTTL, and what it
// forgets by itself is never counted as gone. The error is a Problems. The tenants
// without a policy are not looked at.
func (s *Set) Within(keyTTL time.Duration) error {
	var problems Problems
	for _, tenant := range s.Tenants() {
		ttl := s.byTenant[tenant].EvictionTTL
		if ttl < keyTTL {
			continue
		}
		at := s.ttls[tenant]
		problems = append(problems, Problem{File: at.file, Line: at.line, Field: "spec.evictionTTL", Text: fmt.Sprintf(
			"is %s for tenant %q, and the lookup pods' --key-ttl %s: write less, or start all components with a longer --key-ttl, such as %s",
			ttl, tenant, keyTTL, 2*ttl)})
	}
	if problems == nil {
		return nil
	}
	return problems.sorted()
}

// Len is the number of tenants with a policy of their own.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.byTenant)
}

// Tenants lists, sorted, the tenants with a policy of their own.
func (s *Set) Tenants() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.byTenant))
}
