package main

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

func TestSIGTERMEndsAnIdlePodWell(t *testing.T) {
	p := launch(t)
	p.waitReady()
	p.signal()
	require.Equal(t, exitOK, p.waitExit())
	p.waitLog("stopped")
}

func TestOnSIGTERMThePodIsNotReadyBeforeItStopsTakingCalls(t *testing.T) {
	p := launch(t, "--shutdown-delay=30s")
	p.waitReady()
	watch, err := healthpb.NewHealthClient(p.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "inferencecache.v1alpha1.InferenceCache"})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, first.GetStatus())
	p.signal()
	next, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, next.GetStatus())
	code, body := p.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not ready: shutting down\n", body)
	code, _ = p.get("/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "NO_HINT", p.ask(lookup("t", "a")), "calls are taken as before")
	require.Equal(t, "0", p.metric("inferencecache_ready"))
	p.signal() // enough waited
	require.Equal(t, exitOK, p.waitExit())
}

func TestAStreamUnderWayMayEndDuringTheDrain(t *testing.T) {
	p := launch(t, "--drain=60s")
	p.waitReady()
	stream, err := p.client.ReportCacheState(t.Context())
	require.NoError(t, err)
	update := &pb.CacheStateUpdate{TenantId: "t", ModelId: "m", HashScheme: "s", ReplicaId: "r",
		Prefixes: []*pb.PrefixEntry{{PrefixHash: []byte("p"), TokenCount: 100}}}
	require.NoError(t, stream.Send(update))
	require.Eventually(t, func() bool { return p.metric("inferencecache_ingest_updates_total") == "1" }, generous, 10*time.Millisecond)
	p.signal()
	require.Eventually(t, func() bool { // the port is closed: the drain has begun
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.grpc)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, generous, 10*time.Millisecond)
	require.Equal(t, "2", func() string {
		require.NoError(t, stream.Send(update))
		require.Eventually(t, func() bool { return p.metric("inferencecache_ingest_updates_total") == "2" }, generous, 10*time.Millisecond)
		return "2"
	}(), "metrics can be read during the drain")
	ack, err := stream.CloseAndRecv()
	require.NoError(t, err)
	require.True(t, ack.GetAccepted())
	require.Equal(t, exitOK, p.waitExit())
}

func TestAStreamThatDoesNotEndIsCutAfterTheDrain(t *testing.T) {
	p := launch(t, "--drain=100ms")
	p.waitReady()
	stream, err := p.client.ReportCacheState(context.Background())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.CacheStateUpdate{TenantId: "t", ModelId: "m", ReplicaId: "r", Stats: &pb.ReplicaStats{}}))
	require.Eventually(t, func() bool { return p.metric("inferencecache_ingest_updates_total") == "1" }, generous, 10*time.Millisecond)
	p.signal()
	require.Equal(t, exitOK, p.waitExit())
	_, err = stream.CloseAndRecv()
	require.Equal(t, codes.Unavailable, status.Code(err), "the producer keeps what it sent")
	p.waitLog("calls still under way")
}

func TestAnOldConnectionIsAskedToReconnectAndItsStreamGoesOn(t *testing.T) {
	p := launch(t, "--grpc-max-connection-age=1s")
	p.waitReady()
	stream, err := p.client.ReportCacheState(t.Context())
	require.NoError(t, err)
	p.conn.Connect()
	for state := p.conn.GetState(); state != connectivity.Ready; state = p.conn.GetState() {
		require.True(t, p.conn.WaitForStateChange(t.Context(), state))
	}
	require.True(t, p.conn.WaitForStateChange(t.Context(), connectivity.Ready), "the pod said that it should go")
	require.Equal(t, "NO_HINT", p.ask(lookup("t", "a")), "a new connection is there for new calls")
	require.NoError(t, stream.Send(&pb.CacheStateUpdate{TenantId: "t", ModelId: "m", ReplicaId: "r", Stats: &pb.ReplicaStats{}}))
	ack, err := stream.CloseAndRecv()
	require.NoError(t, err, "what was under way on the old one may end")
	require.True(t, ack.GetAccepted())
}
