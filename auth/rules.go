package auth

import (
	"strings"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// reserved is the tenant of probes: nothing is ever indexed for it.
const reserved = "inferencecache.io/probe"

// rule is what a method asks of a token.
type rule int

const (
	ruleToken  rule = iota // any token that is known
	ruleOpen               // none
	ruleLookup             // that it may look up for the tenant of each message
	ruleReport             // that it may report for the tenant of each message
	ruleWatch              // as ruleLookup, and no tenant means all of them
	ruleAll                // that it may look up for every tenant
)

// rules has every method that is not ruleToken; a method that is new asks for a token.
var rules = map[string]rule{
	healthpb.Health_Check_FullMethodName: ruleOpen,
	healthpb.Health_Watch_FullMethodName: ruleOpen,
	healthpb.Health_List_FullMethodName:  ruleOpen,

	pb.InferenceCache_LookupRoute_FullMethodName:    ruleLookup,
	pb.InferenceCache_LookupPDRoute_FullMethodName:  ruleLookup,
	pb.InferenceCache_RenderTemplate_FullMethodName: ruleLookup,
	pb.InferenceCache_GetCacheState_FullMethodName:  ruleLookup,

	pb.InferenceCache_ReportCacheState_FullMethodName: ruleReport,
	pb.InferenceCache_PublishEvent_FullMethodName:     ruleReport,

	pb.InferenceCache_StreamCacheEvents_FullMethodName: ruleWatch,
	// Its labels name tenants.
	pb.InferenceCache_StreamMetrics_FullMethodName: ruleAll,
}

// allows tells whether h may send msg to a method with this rule, and for which tenant
// it asked. Nothing is known of no tenant and of the reserved one, and nothing reported
// for them is kept, so that they are open to all holders.
func (r rule) allows(h *Holder, msg any) (tenant string, ok bool) {
	if r == ruleAll {
		return All, h.lookup.all
	}
	named, has := msg.(interface{ GetTenantId() string })
	if !has {
		return "", r == ruleToken || r == ruleOpen
	}
	tenant = named.GetTenantId()
	switch r {
	case ruleLookup:
		return tenant, tenant == "" || tenant == reserved || h.lookup.has(tenant)
	case ruleReport:
		return tenant, tenant == "" || tenant == reserved || h.report.has(tenant)
	case ruleWatch:
		if tenant == "" {
			return All, h.lookup.all
		}
		return tenant, tenant == reserved || h.lookup.has(tenant)
	default:
		return tenant, true
	}
}

// verb is what the rule is about, for errors.
func (r rule) verb() string {
	if r == ruleReport {
		return "report for"
	}
	return "look up for"
}

// bearer takes the token out of an authorization header.
func bearer(header string) (token string, ok bool) {
	scheme, token, found := strings.Cut(header, " ")
	return token, found && strings.EqualFold(scheme, "Bearer") && token != ""
}
