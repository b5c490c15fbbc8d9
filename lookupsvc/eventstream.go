package lookupsvc

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// changesAhead bounds what is read of the log before the consumer took it: so many
// changes, of at most a script call's 500 hashes each.
const changesAhead = 64

// eventKinds maps the types that can be asked for.
var eventKinds = map[pb.CacheEvent_Type]ranking.ChangeKind{
	pb.CacheEvent_PREFIX_ADDED:    ranking.ChangeAdded,
	pb.CacheEvent_PREFIX_EVICTED:  ranking.ChangeEvicted,
	pb.CacheEvent_REPLICA_UPDATED: ranking.ChangeUpdated,
	pb.CacheEvent_ALL_CLEARED:     ranking.ChangeCleared,
}

var eventTypes = func() map[ranking.ChangeKind]pb.CacheEvent_Type {
	m := make(map[ranking.ChangeKind]pb.CacheEvent_Type, len(eventKinds))
	for t, k := range eventKinds {
		m[k] = t
	}
	return m
}()

// StreamCacheEvents sends the changes of the index that the request lets pass, one
// event for each hash; those that come after the stream's header are all told. A
// consumer that does not read is cut with RESOURCE_EXHAUSTED; one that missed changes
// all the same, because the log did not wait for it or was lost, with DATA_LOSS.
func (s *Service) StreamCacheEvents(req *pb.StreamEventsRequest, stream grpc.ServerStreamingServer[pb.CacheEvent]) error {
	if s.streams.changes == nil {
		return status.Error(codes.Unimplemented, "this lookup pod does not stream cache events; read GetCacheState instead")
	}
	f, err := filterOf(req)
	if err != nil {
		return err
	}
	leave, err := s.streams.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.stream(stream, f)
}

func filterOf(req *pb.StreamEventsRequest) (*ranking.ChangeFilter, error) {
	if !namesWithin(req.GetTenantId(), req.GetModelId()) {
		return nil, status.Errorf(codes.InvalidArgument, "tenant_id or model_id is longer than %d bytes: nothing is indexed under it", MaxNameBytes)
	}
	f := &ranking.ChangeFilter{Scope: ranking.Scope{Tenant: req.GetTenantId(), Model: req.GetModelId()}}
	for _, t := range req.GetTypes() {
		kind, ok := eventKinds[t]
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument,
				"types has %v: write PREFIX_ADDED, PREFIX_EVICTED, REPLICA_UPDATED or ALL_CLEARED, or no type for all of them", t)
		}
		f.Kinds = append(f.Kinds, kind)
	}
	return f, nil
}

// stream follows here and sends in a goroutine of its own, for a send waits as long as
// the consumer likes. One that still waits when the handler returns ends with it: gRPC
// then ends the stream.
func (s *Service) stream(stream grpc.ServerStreamingServer[pb.CacheEvent], f *ranking.ChangeFilter) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	ahead := make(chan ranking.Change, changesAhead)
	sent := make(chan error, 1)
	go func() {
		sent <- sendEvents(ctx, stream, ahead)
		cancel()
	}()
	err := s.streams.changes.Follow(ctx, f, func() { _ = stream.SendHeader(nil) },
		func(c *ranking.Change) error { return s.streams.offer(ctx, ahead, c) })
	switch {
	case stream.Context().Err() != nil:
		return status.FromContextError(stream.Context().Err()).Err()
	case ctx.Err() != nil:
		return <-sent
	case err == nil:
		err = errors.New("it ended")
	}
	return s.streams.cut(err)
}

// offer hands a change to the sender, and waits no longer than a consumer may be slow.
func (s *streams) offer(ctx context.Context, ahead chan<- ranking.Change, c *ranking.Change) error {
	if c.Tenant == ReservedTenant {
		return nil
	}
	select {
	case ahead <- *c:
		return nil
	default:
	}
	limit := time.NewTimer(s.slow)
	defer limit.Stop()
	select {
	case ahead <- *c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return errSlow
	}
}

// sendEvents turns changes into events, until ctx or the stream ends.
func sendEvents(ctx context.Context, stream grpc.ServerStreamingServer[pb.CacheEvent], ahead <-chan ranking.Change) error {
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case c := <-ahead:
			hashes := c.Hashes
			// Who writes to Redis directly may have called itself anything.
			replica, model, tenant, adapter := utf8Of(c.Replica), utf8Of(c.Model), utf8Of(c.Tenant), utf8Of(c.Adapter)
			if c.Kind == ranking.ChangeCleared || c.Kind == ranking.ChangeUpdated {
				hashes = [][]byte{nil} // one event, of no hash
			}
			for _, h := range hashes {
				if err := stream.Send(&pb.CacheEvent{
					Type: eventTypes[c.Kind], ReplicaId: replica, ModelId: model, TenantId: tenant,
					PrefixHash: h, TimestampUs: c.AtMS * 1000, AdapterId: adapter,
				}); err != nil {
					return err
				}
			}
		}
	}
}

// utf8Of is name as a message can carry it.
func utf8Of(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
