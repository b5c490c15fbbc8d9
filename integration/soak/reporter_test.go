package soak

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/client"
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/replay"
)

// resyncEvery is how often a producer over gRPC reports all that it has. An acknowledged report is
// in Redis, and gone with it when Redis is lost; only the producer can bring it back.
const resyncEvery = 10 * time.Second

// reporter is an engine whose producer speaks gRPC to the pods, through the SDK.
type reporter struct {
	replica string
	rep     *client.Reporter
	w       *world

	mu     sync.Mutex
	cache  *replay.Cache
	synced time.Time
}

func startReporter(t testing.TB, c *client.Client, w *world, replica string, blocks int) *reporter {
	t.Helper()
	rep, err := c.NewReporter(client.ReporterOptions{Queue: 1 << 16, MaxBackoff: time.Second})
	require.NoError(t, err)
	r := &reporter{replica: replica, rep: rep, w: w, cache: replay.NewCache(blocks), synced: time.Now()}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rep.Close(ctx); err != nil {
			t.Errorf("closing the reporter of %s: %v", replica, err)
		}
	})
	return r
}

func (r *reporter) serve(p *prompt) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := context.Background()
	d := r.cache.Serve(p.ids)
	for _, id := range d.Evicted {
		err := r.rep.Publish(ctx, &pb.CacheEvent{Type: pb.CacheEvent_PREFIX_EVICTED, ReplicaId: r.replica, ModelId: model, TenantId: tenant, PrefixHash: []byte(r.w.blocks[id].hash)})
		if err != nil {
			return err
		}
	}
	if time.Since(r.synced) > resyncEvery {
		r.synced = time.Now()
		return r.reportAll(ctx)
	}
	if d.Stored == 0 {
		return nil
	}
	return r.report(ctx, p.ids[d.Reused:d.Reused+d.Stored])
}

func (r *reporter) reportAll(ctx context.Context) error {
	var all []uint64
	for id := range r.w.blocks {
		if r.cache.Contains(id) {
			all = append(all, id)
		}
	}
	return r.report(ctx, all)
}

func (r *reporter) report(ctx context.Context, ids []uint64) error {
	u := &pb.CacheStateUpdate{ReplicaId: r.replica, ModelId: model, TenantId: tenant, HashScheme: scheme,
		Stats: &pb.ReplicaStats{HitRate: 0.5, Pressure: 0.2, CacheMemoryBytes: 1 << 30}}
	for _, id := range ids {
		fp := r.w.blocks[id]
		u.Prefixes = append(u.Prefixes, &pb.PrefixEntry{PrefixHash: []byte(fp.hash), TokenCount: int32(fp.tokens)})
	}
	return r.rep.Report(ctx, u)
}

// finish reports all once more and waits until it is acknowledged.
func (r *reporter) finish(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.reportAll(ctx); err != nil {
		return err
	}
	return r.rep.Flush(ctx)
}

func (r *reporter) name() string { return r.replica }

func (r *reporter) holds(w *world) map[string]uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return held(w, r.cache)
}
