package lookupsvc

import (
	"context"
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// Tracer knows which calls are traced.
type Tracer interface {
	// Lookup is the trace of the call that ctx belongs to; nil if it has none.
	Lookup(ctx context.Context) LookupTrace
}

// LookupTrace hears of the stages of one lookup, in their order and from the
// handler's goroutine; a lookup that is answered early has fewer. It gets names and
// numbers and never the content of a request.
type LookupTrace interface {
	// Names tells whom the lookup is for; policy is the tenant, or "default".
	Names(model, policy string)
	// Input tells how the request was resolved; rejected is the flaw, "" = none.
	Input(start, end time.Time, input, rejected string)
	// Found has what the index answered; ev is not to be kept.
	Found(ev *ranking.Evidence)
	// Ranked tells when the answer was decided on, and how many replicas serve.
	Ranked(start, end time.Time, serving int)
	// Answered has the reply; matched is that of the first replica.
	Answered(reason ranking.Reason, replicas int, matched int32)
	// ID names the trace in exemplars; "" if it is not kept.
	ID() string
}

// DefaultPolicyName is what traces call the policy of tenants without one.
const DefaultPolicyName = "default"

// trace begins the trace of a lookup; nil if there is none.
func (s *Service) trace(ctx context.Context, req *pb.LookupRouteRequest) LookupTrace {
	if s.tracer == nil {
		return nil
	}
	t := s.tracer.Lookup(ctx)
	if t != nil {
		t.Names(cut(req.GetModelId()), s.policyName(req.GetTenantId()))
	}
	return t
}

// policyName is whose policy applies. No policy belongs to the empty tenant, so what
// it gets is the default.
func (s *Service) policyName(tenant string) string {
	if tenant == ReservedTenant || s.policy(tenant) == s.policy("") {
		return DefaultPolicyName
	}
	return cut(tenant)
}

// traced tells t of the reply and returns the name for exemplars.
func traced(t LookupTrace, resp *pb.LookupRouteResponse) (id string) {
	if t == nil {
		return ""
	}
	matched := int32(0)
	if scores := resp.GetReplicaScores(); len(scores) > 0 {
		matched = scores[0].GetMatchedTokens()
	}
	t.Answered(ranking.Reason(resp.GetReasonCode()), len(resp.GetReplicaScores()), matched)
	return t.ID()
}
