package ranking

// Reason is the reason_code of a reply: what kind of answer it is. Readers that
// meet a Reason they do not know treat it as ReasonNoHint.
type Reason string

const (
	// ReasonPrefixMatch says that replicas hold the prefix, or the leading run of the chain.
	ReasonPrefixMatch Reason = "PREFIX_MATCH"
	// ReasonTenantHot says that nobody holds the exact prefix, but these replicas serve the
	// domain and report a good hit rate.
	ReasonTenantHot Reason = "TENANT_HOT"
	// ReasonAffinityHint says that nothing is known about the prefix, and names one replica by
	// its hash, so that a repeated prompt meets the same one again.
	ReasonAffinityHint Reason = "AFFINITY_HINT"
	// ReasonNoHint is no opinion: the fail-open answer.
	ReasonNoHint Reason = "NO_HINT"
	// ReasonTimeout says that the budget ran out before there was an answer.
	ReasonTimeout Reason = "TIMEOUT"
	// ReasonPolicyRequiresChain says that the tenant's policy takes lookups with a chain only.
	ReasonPolicyRequiresChain Reason = "POLICY_REQUIRES_CHAIN"
	// ReasonUnknownTenant says that the index holds something, but nothing for the tenant.
	ReasonUnknownTenant Reason = "UNKNOWN_TENANT"
	// ReasonUnknownModel says that the tenant holds something, but nothing for the model.
	ReasonUnknownModel Reason = "UNKNOWN_MODEL"
	// ReasonUnknownHashScheme says that the model holds something, but nothing under the scheme.
	ReasonUnknownHashScheme Reason = "UNKNOWN_HASH_SCHEME"
)

// Reasons lists every code that a LookupRoute can answer, for metrics that want
// all label values from the start.
func Reasons() []Reason {
	return []Reason{
		ReasonPrefixMatch, ReasonTenantHot, ReasonAffinityHint, ReasonNoHint, ReasonTimeout,
		ReasonPolicyRequiresChain, ReasonUnknownTenant, ReasonUnknownModel, ReasonUnknownHashScheme,
	}
}
