package ranking

import "time"

// Eviction is how a tenant's engines are said to evict. The index does not act
// on it; it labels a metric.
type Eviction string

const (
	// EvictionLRU evicts what was not used for longest.
	EvictionLRU Eviction = "LRU"
	// EvictionLFU evicts what was used least.
	EvictionLFU Eviction = "LFU"
)

// Policy is one tenant's CachePolicy, resolved: every field has its effective
// value. The zero value is not a usable policy (a TTL of 0 makes nothing
// fresh); start from DefaultPolicy.
type Policy struct {
	// EvictionTTL is how long a hold or a pressure report is fresh; more than 0.
	EvictionTTL time.Duration
	// MinimumPrefixTokens: shorter requests get no match and no TENANT_HOT; 0 = off.
	MinimumPrefixTokens int64
	// MinimumMatchedTokens: replicas that matched fewer are dropped; 0 = off.
	MinimumMatchedTokens int64
	// RoutingFloorScore: an answer whose best score is lower is dropped; 0 = off.
	RoutingFloorScore float32
	// LookupTimeout bounds a lookup of the tenant; 0 = no bound of its own.
	LookupTimeout time.Duration
	// Affinity allows AFFINITY_HINT.
	Affinity bool
	// ChainMatching lets chains match block by block; without it only the exact hash counts.
	ChainMatching bool
	// RequireChain refuses lookups without a chain. It needs ChainMatching.
	RequireChain bool
	// TenantHot allows TENANT_HOT.
	TenantHot bool
	// Eviction is reported, not acted on.
	Eviction Eviction
}

// DefaultPolicy is what a tenant without a CachePolicy gets, and what a field
// that a CachePolicy leaves out is set to.
func DefaultPolicy() Policy {
	return Policy{
		EvictionTTL:          30 * time.Minute,
		MinimumMatchedTokens: 64,
		RoutingFloorScore:    0.1,
		Affinity:             true,
		ChainMatching:        true,
		TenantHot:            true,
		Eviction:             EvictionLRU,
	}
}
