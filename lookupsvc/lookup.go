package lookupsvc

import (
	"context"
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// LookupRoute ranks the replicas that hold the request's prefix. It always
// answers: whatever goes wrong on the way is a reason code, a counter and a
// log line, never an error.
func (s *Service) LookupRoute(ctx context.Context, req *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	resp, _ := s.route(ctx, req)
	return resp, nil
}

// route is LookupRoute, and reports false if the index may still read req.
func (s *Service) route(ctx context.Context, req *pb.LookupRouteRequest) (*pb.LookupRouteResponse, bool) {
	start := time.Now()
	trace := s.trace(ctx, req)
	resp, done := s.answer(ctx, req, start, trace)
	resp.PackedChains = true
	elapsed := time.Since(start)
	resp.LookupLatencyUs = elapsed.Microseconds()
	s.metrics.lookupDone(req.GetModelId(), ranking.Reason(resp.GetReasonCode()), len(resp.GetReplicaScores()) > 0, elapsed, traced(trace, resp))
	return resp, done
}

// answer runs the lookup and turns a panic on the way into NO_HINT. It reports
// false if req is still in use.
func (s *Service) answer(ctx context.Context, req *pb.LookupRouteRequest, start time.Time, trace LookupTrace) (resp *pb.LookupRouteResponse, done bool) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked("LookupRoute", v)
			s.metrics.lookupErrors.WithLabelValues(errPanic).Inc()
			resp, done = hintless(ranking.ReasonNoHint), false
		}
	}()
	l := takeLookup()
	if resp, done = s.look(ctx, l, req, start, trace); done {
		l.release()
	}
	return resp, done
}

// look follows the steps of LookupRoute in their order. It reports false if the
// index still works on l, which then must not be used again.
func (s *Service) look(ctx context.Context, l *lookup, req *pb.LookupRouteRequest, start time.Time, trace LookupTrace) (*pb.LookupRouteResponse, bool) {
	tenant := req.GetTenantId()
	if tenant == ReservedTenant {
		s.reject(req, flawReservedTenant)
		return hintless(ranking.ReasonNoHint), true
	}
	p := s.policy(tenant)
	deadline := s.deadline(ctx, start, p)
	if spent(ctx, deadline) {
		return hintless(ranking.ReasonTimeout), true
	}
	if p.RequireChain && !hasChain(req) {
		return hintless(ranking.ReasonPolicyRequiresChain), true
	}
	from, f := l.resolve(req, p, s.blockSize)
	s.metrics.inputs[from].Inc()
	if trace != nil {
		trace.Input(start, time.Now(), sourceNames[from], string(f))
	}
	if f != flawNone {
		s.reject(req, f)
		return hintless(ranking.ReasonNoHint), true
	}
	if reason, stop := ranking.Gate(&l.in, p); stop {
		return hintless(reason), true
	}
	if p.Affinity && !chainAgrees(req) {
		// The chain fields were ignored as the policy has it, but a request that
		// contradicts itself is not to be papered over by an affinity hint.
		without := *p
		without.Affinity = false
		p = &without
	}
	resolved := time.Now()
	s.metrics.stageInput.Observe(resolved.Sub(start).Seconds())

	if l.in.Keyed() {
		switch s.ask(ctx, l, deadline) {
		case askedTooLong:
			return hintless(ranking.ReasonTimeout), true
		case askedLeft:
			return hintless(ranking.ReasonTimeout), false
		case askedFailed:
			resp := hintless(ranking.ReasonNoHint)
			resp.AdapterId = req.GetAdapterId()
			return resp, true
		case askedAnswered:
		}
		s.metrics.evidence(&l.ev)
		if trace != nil {
			trace.Found(&l.ev)
		}
		s.metrics.stageIndex.Observe(time.Since(resolved).Seconds())
	}

	found := time.Now()
	var reason ranking.Reason
	reason, l.candidates = ranking.Decide(&l.in, &l.ev, p, &s.knobs, l.candidates)
	if spent(ctx, deadline) {
		return hintless(ranking.ReasonTimeout), true
	}
	resp := reply(reason, l.candidates)
	resp.AdapterId = req.GetAdapterId()
	ranked := time.Now()
	s.metrics.stageRanking.Observe(ranked.Sub(found).Seconds())
	if trace != nil {
		trace.Ranked(found, ranked, len(l.ev.Serving))
	}
	return resp, true
}

// reject counts a lookup that is answered NO_HINT for what it carries.
func (s *Service) reject(req *pb.LookupRouteRequest, f flaw) {
	s.metrics.lookupRejected[f].Inc()
	if f == flawReservedTenant || f == flawNoFullBlock {
		return // expected: probes, and prompts shorter than a block
	}
	s.sampler.warn("lookup rejected: "+string(f), "model", cut(req.GetModelId()),
		"tenant", cut(req.GetTenantId()), "reason", string(f), "do", f.remedy())
}
