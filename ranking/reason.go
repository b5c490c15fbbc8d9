package ranking

// Reason is the reason_code of a reply: what kind of answer it is. Readers that
// meet a Reason they do not know treat it as ReasonNoHint.
type Reason string

const (
	// ReasonPrefixMatch: replicas hold the prefix, or the leading run of the chain.
	ReasonPrefixMatch Reason = "PREFIX_MATCH"
	// ReasonTenantHot: nobody holds the exact prefix, but these replicas serve the
	// domain and report a good hit rate.
	ReasonTenantHot Reason = "TENANT_HOT"
	// ReasonAffinityHint: nothing is known about the prefix; one replica chosen by
	// its hash, so that a repeated prompt meets the same one again.
	ReasonAffinityHint Reason = "AFFINITY_HINT"
	// ReasonNoHint: no opinion. The fail-open answer.
	ReasonNoHint Reason = "NO_HINT"
	// ReasonTimeout: the budget ran out before there was an answer.
	ReasonTimeout Reason = "TIMEOUT"
	// ReasonPolicyRequiresChain: the tenant's policy takes lookups with a chain only.
	ReasonPolicyRequiresChain Reason = "POLICY_REQUIRES_CHAIN"
	// ReasonUnknownTenant: the index holds something, but nothing for the tenant.
	ReasonUnknownTenant Reason = "UNKNOWN_TENANT"
	// ReasonUnknownModel: the tenant holds something, but nothing for the model.
	ReasonUnknownModel Reason = "UNKNOWN_MODEL"
	// ReasonUnknownHashScheme: the model holds something, but nothing under the scheme.
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
