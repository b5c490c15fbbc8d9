package tracing

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
)

// hot answers every lookup at once, with eight holders of all blocks but a few.
type hot struct {
	lookupsvc.Index
	ev ranking.Evidence
}

func (x *hot) Match(_ context.Context, _ *ranking.Query, ev *ranking.Evidence) error {
	*ev = x.ev
	return nil
}

const benchBlocks = 256

func hotIndex() *hot {
	x := &hot{ev: ranking.Evidence{NowMS: 1_800_000_000_000, Asked: benchBlocks, Cached: benchBlocks}}
	for i := range 8 {
		x.ev.Serving = append(x.ev.Serving, ranking.Replica{ID: fmt.Sprint("replica-", i)})
		x.ev.Runs = append(x.ev.Runs, ranking.Run{Replica: i, Tokens: int64(16 * (benchBlocks - i)), SeenMS: x.ev.NowMS - 1000, Blocks: benchBlocks - i})
	}
	return x
}

func benchRequest() *pb.LookupRouteRequest {
	req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s"}
	for i := range benchBlocks {
		req.BlockHashes = append(req.BlockHashes, fmt.Appendf(nil, "%08d", i))
		req.BlockTokenCounts = append(req.BlockTokenCounts, 16)
	}
	return req
}

// swallow is an exporter that takes everything at once.
type swallow struct{}

func (swallow) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (swallow) Shutdown(context.Context) error                             { return nil }

func provider(b testing.TB, s sdktrace.Sampler) *sdktrace.TracerProvider {
	p := sdktrace.NewTracerProvider(sdktrace.WithSampler(s), sdktrace.WithBatcher(swallow{}))
	b.Cleanup(func() { require.NoError(b, p.Shutdown(context.Background())) })
	return p
}

// BenchmarkHandler prices the seam in the handler: "off" is a service without a
// Tracer, "not kept" one with a Tracer whose sampler keeps nothing, "kept" keeps all.
func BenchmarkHandler(b *testing.B) {
	req := benchRequest()
	for _, how := range []struct {
		name    string
		sampler sdktrace.Sampler
	}{{"off", nil}, {"not kept", sdktrace.NeverSample()}, {"kept", sdktrace.AlwaysSample()}} {
		b.Run(how.name, func(b *testing.B) {
			o := lookupsvc.Options{Index: hotIndex(), Knobs: ranking.DefaultKnobs(), Metrics: prometheus.NewRegistry()}
			around := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				return next(ctx, req)
			}
			if how.sampler != nil {
				t := Over(provider(b, how.sampler))
				o.Tracer, o.Index = t, t.Index(o.Index)
				around, _ = t.Interceptors(pb.InferenceCache_ServiceDesc.ServiceName)
			}
			s, err := lookupsvc.New(o)
			require.NoError(b, err)
			info := &grpc.UnaryServerInfo{FullMethod: pb.InferenceCache_LookupRoute_FullMethodName}
			next := func(ctx context.Context, req any) (any, error) {
				return s.LookupRoute(ctx, req.(*pb.LookupRouteRequest))
			}
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := around(ctx, req, info, next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCall compares ways to make a call's span, over a connection in memory and
// with one caller. The contenders take turns call by call, so that what else the machine
// does hits all alike; x-off is a p50 as a multiple of the service's without tracing.
func BenchmarkCall(b *testing.B) {
	req := benchRequest()
	type contender struct {
		name   string
		client pb.InferenceCacheClient
		took   []time.Duration
	}
	var contenders []*contender
	add := func(name string, t *Tracing, options ...grpc.ServerOption) {
		o := lookupsvc.Options{Index: hotIndex(), Knobs: ranking.DefaultKnobs(), Metrics: prometheus.NewRegistry()}
		if t != nil {
			o.Tracer, o.Index = t, t.Index(o.Index)
		}
		s, err := lookupsvc.New(o)
		require.NoError(b, err)
		contenders = append(contenders, &contender{name: name, client: serve(b, s, options...)})
	}
	add("off", nil)
	for _, how := range []struct {
		name    string
		sampler sdktrace.Sampler
	}{{"not-kept", sdktrace.NeverSample()}, {"kept", sdktrace.AlwaysSample()}} {
		t := Over(provider(b, how.sampler))
		unary, _ := t.Interceptors(pb.InferenceCache_ServiceDesc.ServiceName)
		add(how.name, t, grpc.ChainUnaryInterceptor(unary))
		p := provider(b, how.sampler)
		add("otelgrpc-"+how.name, Over(p), grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(p), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
	for b.Loop() {
		for _, c := range contenders {
			start := time.Now()
			_, err := c.client.LookupRoute(context.Background(), req)
			c.took = append(c.took, time.Since(start))
			require.NoError(b, err)
		}
	}
	p50 := func(c *contender) float64 {
		slices.Sort(c.took)
		return float64(c.took[len(c.took)/2].Nanoseconds()) / 1000
	}
	for _, c := range contenders {
		b.ReportMetric(p50(c), c.name+"-p50-µs")
		b.ReportMetric(p50(c)/p50(contenders[0]), c.name+"-x-off")
	}
	b.ReportMetric(0, "ns/op") // a turn of all of them means nothing
}

func serve(b *testing.B, s *lookupsvc.Service, options ...grpc.ServerOption) pb.InferenceCacheClient {
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(append(lookupsvc.ServerOptions(), options...)...)
	lookupsvc.Register(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///memory",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, conn.Close())
		server.Stop()
		serving.Wait()
	})
	return pb.NewInferenceCacheClient(conn)
}
