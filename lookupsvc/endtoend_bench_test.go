package lookupsvc

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// emptyServer takes a request and returns a reply that it had all along: the floor
// of what gRPC costs.
type emptyServer struct {
	pb.UnimplementedInferenceCacheServer
	reply *pb.LookupRouteResponse
}

func (e *emptyServer) LookupRoute(context.Context, *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	return e.reply, nil
}

// contender is one way to serve and to ask.
type contender struct {
	name   string
	client pb.InferenceCacheClient
	req    *pb.LookupRouteRequest
	took   []time.Duration // one caller's calls
	calls  int64           // of many callers
	busy   time.Duration   // for how long they called
}

// BenchmarkEndToEnd asks over loopback TCP: an empty handler on gRPC's own codec; the
// service on an index that answers at once, on that codec, on the wire codec, and
// there with a packed chain. The contenders take turns call by call, and then round
// by round with many callers, so that what else the machine does hits all alike.
// x-empty is a p50 as a multiple of the empty handler's, x-plain calls a second as a
// multiple of those of the same service without the packed form.
func BenchmarkEndToEnd(b *testing.B) {
	for _, blocks := range []int{256, 2000} {
		b.Run(fmt.Sprint(blocks, " blocks"), func(b *testing.B) { benchEndToEnd(b, blocks) })
	}
}

func benchEndToEnd(b *testing.B, blocks int) {
	s, err := New(Options{Index: hotIndex(blocks, 8), Knobs: ranking.DefaultKnobs(), Metrics: prometheus.NewRegistry()})
	require.NoError(b, err)
	plain := &pb.LookupRouteRequest{TenantId: "tenant-a", ModelId: "llama-3-70b", HashScheme: "vllm"}
	for i := range blocks {
		plain.BlockHashes = append(plain.BlockHashes, fmt.Appendf(nil, "%08d", i))
		plain.BlockTokenCounts = append(plain.BlockTokenCounts, 16)
	}
	packed := &pb.LookupRouteRequest{TenantId: "tenant-a", ModelId: "llama-3-70b", HashScheme: "vllm",
		PackedBlockHashes: bytes.Join(plain.BlockHashes, nil), PackedHashBytes: 8, BlockTokenCounts: []int32{16}}
	reply, err := s.LookupRoute(context.Background(), plain)
	require.NoError(b, err)
	require.Len(b, reply.GetReplicaScores(), 8)

	stock := overTCP(b, func(g *grpc.Server) { pb.RegisterInferenceCacheServer(g, s) }, grpc.MaxRecvMsgSize(MaxMessageBytes))
	codec := overTCP(b, func(g *grpc.Server) { Register(g, s) }, ServerOptions()...)
	contenders := []*contender{
		{name: "empty", client: overTCP(b, func(g *grpc.Server) { pb.RegisterInferenceCacheServer(g, &emptyServer{reply: reply}) }), req: plain},
		{name: "stock", client: stock, req: plain},
		{name: "codec", client: codec, req: plain},
		{name: "packed", client: codec, req: packed},
	}
	for b.Loop() {
		for _, c := range contenders {
			start := time.Now()
			c.call(b)
			c.took = append(c.took, time.Since(start))
		}
	}
	const rounds, round = 10, 100 * time.Millisecond
	for range rounds {
		for _, c := range contenders {
			c.crowd(b, 16, round)
		}
	}
	empty, codecRate := contenders[0], contenders[2].rate()
	for _, c := range contenders {
		b.ReportMetric(float64(c.p50().Microseconds()), c.name+"-p50-µs")
		b.ReportMetric(c.rate(), c.name+"-calls/s")
		if c != empty {
			b.ReportMetric(float64(c.p50())/float64(empty.p50()), c.name+"-x-empty")
		}
	}
	packedRate := contenders[3].rate()
	b.ReportMetric(packedRate/codecRate, "packed-x-plain")
	b.ReportMetric(packedRate/contenders[1].rate(), "packed-x-stock")
	b.ReportMetric(0, "ns/op") // a turn of all of them means nothing
}

func (c *contender) call(b *testing.B) {
	resp, err := c.client.LookupRoute(context.Background(), c.req)
	if err != nil || len(resp.GetReplicaScores()) == 0 {
		b.Error(c.name, err, resp)
	}
}

// crowd lets callers call for a while.
func (c *contender) crowd(b *testing.B, callers int, d time.Duration) {
	var calls atomic.Int64
	var done sync.WaitGroup
	start := time.Now()
	for range callers {
		done.Go(func() {
			for time.Since(start) < d {
				c.call(b)
				calls.Add(1)
			}
		})
	}
	done.Wait()
	c.calls += calls.Load()
	c.busy += time.Since(start)
}

func (c *contender) p50() time.Duration {
	slices.Sort(c.took)
	return c.took[len(c.took)/2]
}

func (c *contender) rate() float64 { return float64(c.calls) / c.busy.Seconds() }

// hotIndex answers at once that all holders have all of a chain but a few blocks.
func hotIndex(blocks, holders int) *instantIndex {
	x := &instantIndex{ev: ranking.Evidence{NowMS: baseMS, Asked: blocks, Cached: blocks}}
	for i := range holders {
		x.ev.Serving = append(x.ev.Serving, ranking.Replica{ID: fmt.Sprint("replica-", i)})
		x.ev.Runs = append(x.ev.Runs, ranking.Run{Replica: i, Tokens: int64(16 * (blocks - i)), SeenMS: baseMS - 1000, Blocks: blocks - i})
	}
	return x
}

// overTCP serves on loopback and returns a client of one connection.
func overTCP(b *testing.B, register func(*grpc.Server), options ...grpc.ServerOption) pb.InferenceCacheClient {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := grpc.NewServer(options...)
	register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, conn.Close())
		server.Stop()
		serving.Wait()
	})
	return pb.NewInferenceCacheClient(conn)
}
