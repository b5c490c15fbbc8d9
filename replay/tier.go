package replay

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Pauses between two attempts of a write.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// tier is the lookup tier as gateways and sidecars use it, with every call timed.
type tier struct {
	rpc     pb.InferenceCacheClient
	o       *Options
	retries atomic.Int64

	lookups, inPod, reports, evictions latencies
}

// lookup asks for a route. An error means that no answer came.
func (t *tier) lookup(ctx context.Context, c *chain) (*pb.LookupRouteResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.RPCTimeout)
	defer cancel()
	start := time.Now()
	reply, err := t.rpc.LookupRoute(ctx, &pb.LookupRouteRequest{
		TenantId:         t.o.Tenant,
		ModelId:          t.o.Model,
		HashScheme:       t.o.Scheme,
		AdapterId:        t.o.Adapter,
		BlockHashes:      c.hashes,
		BlockTokenCounts: c.counts,
	})
	if err != nil {
		return nil, err
	}
	t.lookups.add(time.Since(start))
	t.inPod.add(time.Duration(reply.GetLookupLatencyUs()) * time.Microsecond)
	return reply, nil
}

// report sends one update and waits until the index has taken it.
func (t *tier) report(ctx context.Context, update *pb.CacheStateUpdate) error {
	return t.insist(ctx, "report for "+update.GetReplicaId(), &t.reports, func(ctx context.Context) error {
		stream, err := t.rpc.ReportCacheState(ctx)
		if err != nil {
			return err
		}
		// A failed Send says only EOF; the reason comes from CloseAndRecv.
		_ = stream.Send(update)
		_, err = stream.CloseAndRecv()
		return err
	})
}

// evict tells of all the blocks that an engine evicted for one request, several at a
// time: they are different blocks, so their order among themselves does not matter.
func (t *tier) evict(ctx context.Context, engineID string, blocks []uint64) error {
	if len(blocks) == 0 {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(t.o.Pipeline)
	for _, id := range blocks {
		group.Go(func() error {
			return t.publish(ctx, "eviction on "+engineID, &t.evictions, &pb.CacheEvent{
				Type:       pb.CacheEvent_PREFIX_EVICTED,
				ReplicaId:  engineID,
				TenantId:   t.o.Tenant,
				ModelId:    t.o.Model,
				AdapterId:  t.o.Adapter,
				PrefixHash: evictedHash(id, t.o.Seed),
			})
		})
	}
	return group.Wait()
}

// clear tells that an engine holds nothing.
func (t *tier) clear(ctx context.Context, engineID string) error {
	return t.publish(ctx, "clear of "+engineID, &latencies{}, &pb.CacheEvent{
		Type: pb.CacheEvent_ALL_CLEARED, ReplicaId: engineID, TenantId: t.o.Tenant, ModelId: t.o.Model,
	})
}

func (t *tier) publish(ctx context.Context, what string, l *latencies, event *pb.CacheEvent) error {
	return t.insist(ctx, what, l, func(ctx context.Context) error {
		_, err := t.rpc.PublishEvent(ctx, event)
		return err
	})
}

// insist sends a write until the tier takes it: a producer keeps what was refused,
// and all writes may be repeated. Each attempt that succeeds is timed.
func (t *tier) insist(ctx context.Context, what string, l *latencies, call func(context.Context) error) error {
	giveUp := time.Now().Add(t.o.RetryFor)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		attempt, cancel := context.WithTimeout(ctx, t.o.RPCTimeout)
		start := time.Now()
		err := call(attempt)
		cancel()
		if err == nil {
			l.add(time.Since(start))
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if hopeless(err) || time.Now().Add(pause).After(giveUp) {
			return fmt.Errorf("the tier did not take the %s: %w", what, err)
		}
		t.retries.Add(1)
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// hopeless errors do not go away by trying again.
func hopeless(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown:
		return false
	default:
		return true
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
