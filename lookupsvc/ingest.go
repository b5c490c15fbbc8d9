package lookupsvc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// Values of the rpc label of ingest_errors_total.
const (
	rpcReport  = "ReportCacheState"
	rpcPublish = "PublishEvent"
	rpcState   = "GetCacheState"
)

// PublishEvent hands one event to the index. What cannot be acted on is
// acknowledged all the same, and counted.
func (s *Service) PublishEvent(ctx context.Context, e *pb.CacheEvent) (*pb.Ack, error) {
	ack := &pb.Ack{Accepted: true, PackedChains: true}
	ev, f := eventOf(e)
	if f != flawNone {
		s.dropped(ctx, rpcPublish, e, f)
		return ack, nil
	}
	if ev == nil {
		return ack, nil
	}
	if err := s.index.Publish(ctx, ev); err != nil {
		return nil, s.unavailable(rpcPublish, "the event was not taken", err)
	}
	s.metrics.events.WithLabelValues(e.GetType().String()).Inc()
	return ack, nil
}

// eventOf maps an event; nil without a flaw = it changes nothing.
func eventOf(e *pb.CacheEvent) (*ranking.Event, flaw) {
	ev := &ranking.Event{
		Scope:   ranking.Scope{Tenant: e.GetTenantId(), Model: e.GetModelId()},
		Replica: e.GetReplicaId(),
		AtMS:    unixMS(e.GetTimestampUs()),
	}
	switch e.GetType() {
	case pb.CacheEvent_PREFIX_EVICTED:
		ev.Kind, ev.Hash, ev.Adapter = ranking.EventEvicted, e.GetPrefixHash(), e.GetAdapterId()
	case pb.CacheEvent_ALL_CLEARED:
		ev.Kind = ranking.EventCleared
	case pb.CacheEvent_REPLICA_UPDATED:
		ev.Kind = ranking.EventAlive
	case pb.CacheEvent_PREFIX_ADDED:
		// It has neither scheme nor count: reports carry holds.
		return nil, flawNone
	default:
		return nil, flawUnknownEventType
	}
	if f := addressFlaw(ev.Tenant, ev.Model, ev.Replica); f != flawNone {
		return nil, f
	}
	if !namesWithin(ev.Adapter) {
		return nil, flawNameTooLong
	}
	if len(ev.Hash) > MaxHashBytes {
		return nil, flawHashTooLong
	}
	return ev, flawNone
}

// GetCacheState tells what the index knows of a (tenant, model).
func (s *Service) GetCacheState(ctx context.Context, req *pb.GetCacheStateRequest) (*pb.GetCacheStateResponse, error) {
	resp := &pb.GetCacheStateResponse{Summary: &pb.CacheSummary{}}
	tenant, model := req.GetTenantId(), req.GetModelId()
	if tenant == ReservedTenant || tenant == "" || model == "" || !namesWithin(tenant, model) {
		return resp, nil // nothing is ever indexed there
	}
	state, err := s.index.State(ctx, ranking.Scope{Tenant: tenant, Model: model})
	if err != nil {
		return nil, s.unavailable(rpcState, "the index was not read", err)
	}
	resp.Summary.TotalPrefixes = state.Prefixes
	resp.Replicas = make([]*pb.ReplicaStats, 0, len(state.Replicas))
	for i := range state.Replicas {
		r := &state.Replicas[i]
		resp.Replicas = append(resp.Replicas, &pb.ReplicaStats{
			ReplicaId:        r.ID,
			CacheMemoryBytes: r.Stats.MemoryBytes,
			HitRate:          r.Stats.HitRate,
			Pressure:         r.Stats.Pressure,
			ClientVersion:    r.Stats.ClientVersion,
			T2HitTokens:      r.Stats.T2HitTokens,
			T2QueryTokens:    r.Stats.T2QueryTokens,
		})
	}
	return resp, nil
}

// addressed is what says whose cache is meant: an update or an event.
type addressed interface {
	GetTenantId() string
	GetModelId() string
	GetReplicaId() string
}

// dropped counts what was acknowledged and not indexed, and names its producer.
func (s *Service) dropped(ctx context.Context, rpc string, from addressed, f flaw) {
	s.metrics.ingestDropped[f].Inc()
	if f != flawReservedTenant {
		s.sampler.warn("ingest dropped: "+string(f), append(producerOf(ctx, from), "rpc", rpc, "reason", string(f), "do", f.remedy())...)
	}
}

// producerOf is who sent something, for the log.
func producerOf(ctx context.Context, from addressed) []any {
	address := ""
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	return []any{"tenant", cut(from.GetTenantId()), "model", cut(from.GetModelId()), "replica", cut(from.GetReplicaId()), "peer", address}
}

// doubt warns of stats that no engine has. They are kept as reported; the ranking
// takes a hit rate above 1 for 1, and pressure for at most all of a score.
func (s *Service) doubt(ctx context.Context, u *pb.CacheStateUpdate, st *ranking.Stats) {
	within := func(share float32) bool { return share >= 0 && share <= 1 }
	if within(st.HitRate) && within(st.Pressure) {
		return
	}
	s.sampler.warn("stats out of range: kept as reported", append(producerOf(ctx, u),
		"hit_rate", st.HitRate, "pressure", st.Pressure, "do", "send hit_rate and pressure from 0 to 1")...)
}

// unavailable is the one place where an error of the index becomes a status; what
// is a constant.
func (s *Service) unavailable(rpc, what string, err error) error {
	s.metrics.ingestErrors.WithLabelValues(rpc).Inc()
	s.sampler.error("index failed: "+what, "rpc", rpc, "error", err)
	return status.Errorf(codes.Unavailable, "%s, send it again: %v", what, err)
}
