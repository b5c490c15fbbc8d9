package client

// Reason is a reason code of LookupRoute, as docs/reason-codes.md explains them.
type Reason string

// The codes that this version knows.
const (
	PrefixMatch         Reason = "PREFIX_MATCH"
	TenantHot           Reason = "TENANT_HOT"
	AffinityHint        Reason = "AFFINITY_HINT"
	NoHint              Reason = "NO_HINT"
	Timeout             Reason = "TIMEOUT"
	PolicyRequiresChain Reason = "POLICY_REQUIRES_CHAIN"
	UnknownTenant       Reason = "UNKNOWN_TENANT"
	UnknownModel        Reason = "UNKNOWN_MODEL"
	UnknownHashScheme   Reason = "UNKNOWN_HASH_SCHEME"
)

// known tells whether r means something to this version, and whether replies with
// it name replicas.
func (r Reason) known() (known, names bool) {
	switch r {
	case PrefixMatch, TenantHot, AffinityHint:
		return true, true
	case NoHint, Timeout, PolicyRequiresChain, UnknownTenant, UnknownModel, UnknownHashScheme:
		return true, false
	default:
		return false, false
	}
}
