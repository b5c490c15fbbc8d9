package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// events opens a stream and returns when the pod follows the log.
func (p *process) events(ctx context.Context, req *pb.StreamEventsRequest) pb.InferenceCache_StreamCacheEventsClient {
	p.t.Helper()
	stream, err := p.client.StreamCacheEvents(ctx, req)
	require.NoError(p.t, err)
	_, err = stream.Header()
	require.NoError(p.t, err)
	return stream
}

func (p *process) publish(e *pb.CacheEvent) {
	p.t.Helper()
	_, err := p.client.PublishEvent(p.t.Context(), e)
	require.NoError(p.t, err)
}

func next(t *testing.T, stream pb.InferenceCache_StreamCacheEventsClient) string {
	t.Helper()
	limit := time.AfterFunc(generous, func() { panic("no event comes") })
	defer limit.Stop()
	e, err := stream.Recv()
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMicro(), e.GetTimestampUs(), float64(time.Hour.Microseconds()))
	return fmt.Sprintf("%v %s %s/%s %s", e.GetType(), e.GetReplicaId(), e.GetTenantId(), e.GetModelId(), e.GetPrefixHash())
}

func TestEventsOfTheWholeTierReachEveryPodWithAndWithoutCache(t *testing.T) {
	writer := launch(t)
	writer.waitReady()
	url, _ := writer.waitLog("EMBEDDED STORE")["redis_url"].(string)
	for _, cache := range []string{"on", "off"} {
		t.Run("cache "+cache, func(t *testing.T) {
			p := launch(t, "--redis", url, "--cache", cache)
			p.waitReady()
			tenant := "t-" + cache
			all := p.events(t.Context(), &pb.StreamEventsRequest{})
			one := p.events(t.Context(), &pb.StreamEventsRequest{TenantId: tenant, ModelId: "m",
				Types: []pb.CacheEvent_Type{pb.CacheEvent_PREFIX_EVICTED, pb.CacheEvent_ALL_CLEARED}})
			require.NoError(t, writer.report("inferencecache.io/probe", "r1", "a"), "dropped, and never shown")
			// A partition that is empty again before it was found would not be told of.
			require.NoError(t, writer.report(tenant, "r0", "kept"))
			require.NoError(t, writer.report(tenant, "r1", "a", "b"))
			writer.publish(&pb.CacheEvent{Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: tenant, ModelId: "m", ReplicaId: "r1", PrefixHash: []byte("b")})
			writer.publish(&pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, TenantId: tenant, ModelId: "m", ReplicaId: "r1"})
			for _, want := range []string{
				"PREFIX_ADDED r0 " + tenant + "/m kept",
				"PREFIX_ADDED r1 " + tenant + "/m a", "PREFIX_ADDED r1 " + tenant + "/m b",
				"PREFIX_EVICTED r1 " + tenant + "/m b", "ALL_CLEARED r1 " + tenant + "/m ",
			} {
				require.Equal(t, want, next(t, all))
			}
			require.Equal(t, "PREFIX_EVICTED r1 "+tenant+"/m b", next(t, one))
			require.Equal(t, "ALL_CLEARED r1 "+tenant+"/m ", next(t, one))
			require.Equal(t, "2", p.metric("inferencecache_streams_open"))
		})
	}
}

func TestAConsumerThatDoesNotReadIsToldAndThePodGoesOn(t *testing.T) {
	p := launch(t, "--lookup-timeout=60s")
	p.waitReady()
	stream := p.events(t.Context(), &pb.StreamEventsRequest{TenantId: "t", ModelId: "m"})
	for i := range 80 { // more than the stream, the connection and what is read ahead take together
		hashes := make([]string, 500)
		for j := range hashes {
			hashes[j] = fmt.Sprintf("%016d-%015d", i, j)
		}
		require.NoError(t, p.report("t", "r1", hashes...))
	}
	require.Eventually(t, func() bool { return p.metric(`inferencecache_streams_cut_total{reason="slow"}`) == "1" }, generous, 50*time.Millisecond)
	require.Eventually(t, func() bool { // the embedded store may be busy for a moment
		return p.ask(lookup("t", fmt.Sprintf("%016d-%015d", 79, 0))) == "PREFIX_MATCH"
	}, generous, 50*time.Millisecond)
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.Equal(t, "0", p.metric("inferencecache_streams_open"))
}

func TestMetricsStreamFromTheRegistry(t *testing.T) {
	p := launch(t)
	p.waitReady()
	stream, err := p.client.StreamMetrics(t.Context(), &pb.StreamMetricsRequest{Names: []string{"inferencecache_build_info"}})
	require.NoError(t, err)
	for range 2 { // at once, and after an interval
		m, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, "inferencecache_build_info", m.GetName())
		require.Equal(t, "gauge", m.GetType())
		require.Equal(t, "v9.9.9-test", m.GetLabels()["version"])
		require.InDelta(t, 1, m.GetValue(), 0)
	}
	all, err := p.client.StreamMetrics(t.Context(), &pb.StreamMetricsRequest{})
	require.NoError(t, err)
	seen := map[string]bool{}
	for !seen["go_goroutines"] || !seen["inferencecache_server_up"] {
		m, err := all.Recv()
		require.NoError(t, err)
		seen[m.GetName()] = true
	}
}

func TestEndlessCallsEndWhenThePodDrains(t *testing.T) {
	p := launch(t, "--drain=10m")
	p.waitReady()
	events := p.events(context.Background(), &pb.StreamEventsRequest{})
	metrics, err := p.client.StreamMetrics(context.Background(), &pb.StreamMetricsRequest{Names: []string{"inferencecache_server_up"}})
	require.NoError(t, err)
	_, err = metrics.Recv()
	require.NoError(t, err)
	watch, err := healthpb.NewHealthClient(p.conn).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	p.signal()
	require.Equal(t, exitOK, p.waitExit(), "without waiting for --drain")
	require.NotContains(t, p.log(), "calls still under way")
	_, err = events.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "open the stream at another")
	for err = nil; err == nil; {
		_, err = watch.Recv()
	}
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}

func TestEventsOfAnIndexThatIsAwayAreUnavailable(t *testing.T) {
	p := launch(t, "--redis=redis://127.0.0.1:1")
	stream, err := p.client.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "has not reached Redis")
}
