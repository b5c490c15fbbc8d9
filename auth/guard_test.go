package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// taker takes everything, and tells how many updates it was given.
type taker struct {
	pb.UnimplementedInferenceCacheServer
	updates atomic.Int64
	more    chan struct{}
}

func (s *taker) LookupRoute(context.Context, *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	return &pb.LookupRouteResponse{ReasonCode: "NO_HINT"}, nil
}

func (s *taker) ReportCacheState(stream grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.Ack{Accepted: true})
		} else if err != nil {
			return err
		}
		s.updates.Add(1)
	}
}

func (s *taker) StreamCacheEvents(_ *pb.StreamEventsRequest, stream grpc.ServerStreamingServer[pb.CacheEvent]) error {
	for range s.more {
		if err := stream.Send(&pb.CacheEvent{}); err != nil {
			return err
		}
	}
	return nil
}

type guarding struct {
	*taker
	table  atomic.Pointer[Table]
	reg    *prometheus.Registry
	conn   *grpc.ClientConn
	client pb.InferenceCacheClient
	log    *bytes.Buffer
}

func (g *guarding) use(t *testing.T, file string) {
	t.Helper()
	table, err := Parse([]byte(file))
	require.NoError(t, err)
	g.table.Store(table)
}

const mine = "tokens: [{name: gateway, token: " + secret + ", lookup: [mine], report: [mine]}]"

func serve(t *testing.T) *guarding {
	t.Helper()
	g := &guarding{taker: &taker{more: make(chan struct{})}, reg: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	g.use(t, mine)
	guard := New(g.table.Load, g.reg, slog.New(slog.NewJSONHandler(g.log, nil)))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary), grpc.ChainStreamInterceptor(guard.Stream))
	pb.RegisterInferenceCacheServer(server, g.taker)
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-served) })
	g.conn, err = grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.conn.Close() })
	g.client = pb.NewInferenceCacheClient(g.conn)
	return g
}

func (g *guarding) rejections(t *testing.T, reason string) float64 {
	t.Helper()
	families, err := g.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "inferencecache_auth_rejected_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no series of %s", reason)
	return 0
}

func as(t *testing.T, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

func TestALookupNeedsATokenOfItsTenant(t *testing.T) {
	g := serve(t)
	ask := func(ctx context.Context, tenant string) error {
		_, err := g.client.LookupRoute(ctx, &pb.LookupRouteRequest{TenantId: tenant})
		return err
	}
	require.NoError(t, ask(as(t, secret), "mine"))

	require.Equal(t, codes.Unauthenticated, status.Code(ask(t.Context(), "mine")))
	require.Equal(t, codes.Unauthenticated, status.Code(ask(as(t, "somebody else's"), "mine")))
	require.Equal(t, codes.Unauthenticated, status.Code(ask(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Basic x"), "mine")))
	require.Equal(t, codes.Unauthenticated, status.Code(ask(metadata.AppendToOutgoingContext(as(t, secret), "authorization", "Bearer y"), "mine")))
	err := ask(as(t, secret), "theirs")
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.ErrorContains(t, err, `"gateway" may not look up for tenant "theirs"`)

	require.EqualValues(t, 1, g.rejections(t, reasonMissing))
	require.EqualValues(t, 1, g.rejections(t, reasonUnknown))
	require.EqualValues(t, 2, g.rejections(t, reasonMalformed))
	require.EqualValues(t, 1, g.rejections(t, reasonTenant))
}

func TestEachUpdateOfAReportIsChecked(t *testing.T) {
	g := serve(t)
	stream, err := g.client.ReportCacheState(as(t, secret))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.CacheStateUpdate{TenantId: "mine"}))
	require.NoError(t, stream.Send(&pb.CacheStateUpdate{TenantId: "theirs"}))
	_, err = stream.CloseAndRecv()
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.EqualValues(t, 1, g.updates.Load())

	stream, err = g.client.ReportCacheState(t.Context())
	require.NoError(t, err)
	_, err = stream.CloseAndRecv()
	require.Equal(t, codes.Unauthenticated, status.Code(err))
}

func TestAWithdrawnTokenEndsStreamsAtTheirNextMessage(t *testing.T) {
	g := serve(t)
	report, err := g.client.ReportCacheState(as(t, secret))
	require.NoError(t, err)
	require.NoError(t, report.Send(&pb.CacheStateUpdate{TenantId: "mine"}))
	events, err := g.client.StreamCacheEvents(as(t, secret), &pb.StreamEventsRequest{TenantId: "mine"})
	require.NoError(t, err)
	g.more <- struct{}{}
	_, err = events.Recv()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return g.updates.Load() == 1 }, generous, interval)

	g.use(t, "tokens: [{name: other, token: 0123456789abcdef-of-b, lookup: [mine]}]")
	g.more <- struct{}{}
	_, err = events.Recv()
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.NoError(t, report.Send(&pb.CacheStateUpdate{TenantId: "mine"}))
	_, err = report.CloseAndRecv()
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.EqualValues(t, 1, g.updates.Load())
}

func TestHealthIsOpenAndReflectionIsNot(t *testing.T) {
	g := serve(t)
	_, err := healthpb.NewHealthClient(g.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	list := func(ctx context.Context) error {
		stream, err := reflectionpb.NewServerReflectionClient(g.conn).ServerReflectionInfo(ctx)
		require.NoError(t, err)
		_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, err = stream.Recv()
		return err
	}
	require.Equal(t, codes.Unauthenticated, status.Code(list(t.Context())))
	require.NoError(t, list(as(t, secret)))
}

// Whoever reads the log has to find the caller: one without a known token has nothing but an address.
func TestARefusalIsLoggedWithTheCallersAddress(t *testing.T) {
	g := serve(t)
	_, err := g.client.LookupRoute(t.Context(), &pb.LookupRouteRequest{TenantId: "mine"})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	var line struct{ Reason, Peer string }
	require.NoError(t, json.Unmarshal(g.log.Bytes(), &line), g.log)
	require.Equal(t, "missing_token", line.Reason)
	host, _, err := net.SplitHostPort(line.Peer)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
}
