package bench

import (
	"cmp"
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

	"inferencecache.io/lookuptier/client"
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/cputime"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// BenchmarkEndToEnd asks for a hot chain that eight replicas hold, over loopback TCP.
//
//	empty   a handler that does nothing, on gRPC's own codec, with the same messages
//	stock   the service on a pod's memory of a real Redis, on gRPC's own codec
//	codec   the same on the wire codec
//	packed  the same with a packed chain
//	client  the same through the Go client, which packs a chain given hash by hash
//
// Each has a connection of its own. They take turns call by call, and then round by
// round with 16 callers, so that what else the machine does hits all alike. x-empty is
// a p50 as a multiple of the empty handler's. packed-x-stock and packed-x-codec are
// calls a second, packed against plain, in the median round; packed-cpu-x-… are the
// same by processor time, which is what they come to on a machine that does nothing
// else. Callers and pod share the machine's cores.
func BenchmarkEndToEnd(b *testing.B) {
	for _, blocks := range []int{256, 2000} {
		b.Run(fmt.Sprint(blocks, " blocks"), func(b *testing.B) { benchEndToEnd(b, blocks) })
	}
}

// contender is one way to serve and to ask.
type contender struct {
	name string
	ask  func() (replicas int, err error)
	took []time.Duration // one caller's calls
	// Of many callers, round by round: calls a second, and a call's processor time on
	// both sides, µs.
	rates, costs []float64
}

func benchEndToEnd(b *testing.B, blocks int) {
	plain, packed := requests(blocks)
	s := hotService(b, plain, 8)
	reply, err := s.LookupRoute(context.Background(), plain)
	require.NoError(b, err)
	require.Len(b, reply.GetReplicaScores(), 8, reply)

	empty := connect(b, listen(b, func(g *grpc.Server) { pb.RegisterInferenceCacheServer(g, &emptyServer{reply: reply}) }))
	generated := connect(b, listen(b, func(g *grpc.Server) { pb.RegisterInferenceCacheServer(g, s) }))
	wire := listen(b, func(g *grpc.Server) { lookupsvc.Register(g, s) }, lookupsvc.ServerOptions()...)
	contenders := []*contender{
		{name: "empty", ask: asking(empty, plain)},
		{name: "stock", ask: asking(generated, plain)},
		{name: "codec", ask: asking(connect(b, wire), plain)},
		{name: "packed", ask: asking(connect(b, wire), packed)},
		{name: "client", ask: throughClient(b, wire, plain)},
	}
	for b.Loop() {
		for _, c := range contenders {
			start := time.Now()
			c.call(b)
			c.took = append(c.took, time.Since(start))
		}
	}
	const rounds, round = 21, 100 * time.Millisecond
	for range rounds {
		for _, c := range contenders {
			c.crowd(b, 16, round)
		}
	}
	for _, c := range contenders {
		p50 := median(c.took)
		b.ReportMetric(float64(p50.Nanoseconds())/1000, c.name+"-p50-µs")
		b.ReportMetric(median(c.rates), c.name+"-calls/s")
		b.ReportMetric(median(c.costs), c.name+"-cpu-µs")
		if c.name != "empty" {
			b.ReportMetric(float64(p50)/float64(median(contenders[0].took)), c.name+"-x-empty")
		}
	}
	stock, codec, packs := contenders[1], contenders[2], contenders[3]
	b.ReportMetric(ratio(packs.rates, stock.rates), "packed-x-stock")
	b.ReportMetric(ratio(packs.rates, codec.rates), "packed-x-codec")
	b.ReportMetric(ratio(stock.costs, packs.costs), "packed-cpu-x-stock")
	b.ReportMetric(ratio(codec.costs, packs.costs), "packed-cpu-x-codec")
	b.ReportMetric(0, "ns/op") // a turn of all of them means nothing
}

func (c *contender) call(b *testing.B) {
	if replicas, err := c.ask(); err != nil || replicas != 8 {
		b.Error(c.name, replicas, err)
	}
}

// crowd lets callers call for a while.
func (c *contender) crowd(b *testing.B, callers int, d time.Duration) {
	var calls atomic.Int64
	var done sync.WaitGroup
	start, used := time.Now(), cputime.Used(b)
	for range callers {
		done.Go(func() {
			for time.Since(start) < d {
				c.call(b)
				calls.Add(1)
			}
		})
	}
	done.Wait()
	c.rates = append(c.rates, float64(calls.Load())/time.Since(start).Seconds())
	c.costs = append(c.costs, float64((cputime.Used(b)-used).Nanoseconds())/1000/float64(calls.Load()))
}

// ratio is that of the median round.
func ratio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

func median[T cmp.Ordered](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

func asking(c pb.InferenceCacheClient, req *pb.LookupRouteRequest) func() (int, error) {
	return func() (int, error) {
		resp, err := c.LookupRoute(context.Background(), req)
		return len(resp.GetReplicaScores()), err
	}
}

func throughClient(b *testing.B, addr string, req *pb.LookupRouteRequest) func() (int, error) {
	c, err := client.Dial(addr, client.Options{Timeout: time.Minute})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	return func() (int, error) {
		r := c.LookupRoute(context.Background(), req)
		return len(r.Replicas), r.Err
	}
}

// requests are the same chain in both forms.
func requests(blocks int) (plain, packed *pb.LookupRouteRequest) {
	plain = &pb.LookupRouteRequest{TenantId: "tenant-a", ModelId: "llama-3-70b", HashScheme: "vllm"}
	packed = &pb.LookupRouteRequest{TenantId: "tenant-a", ModelId: "llama-3-70b", HashScheme: "vllm",
		PackedHashBytes: 8, BlockTokenCounts: []int32{16}}
	for i := range blocks {
		h := fmt.Appendf(nil, "%08x", uint32(i)*2654435761)
		plain.BlockHashes = append(plain.BlockHashes, h)
		plain.BlockTokenCounts = append(plain.BlockTokenCounts, 16)
		packed.PackedBlockHashes = append(packed.PackedBlockHashes, h...)
	}
	return plain, packed
}

// emptyServer takes a request and returns a reply that it had all along: the floor of
// what gRPC costs.
type emptyServer struct {
	pb.UnimplementedInferenceCacheServer
	reply *pb.LookupRouteResponse
}

func (e *emptyServer) LookupRoute(context.Context, *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	return e.reply, nil
}

// hotService is the service on the memory of a pod, in front of a real Redis in which
// the holders have the chain, each a block less than the one before; a ninth replica
// serves the model and holds nothing of it. It returns when memory answers.
func hotService(b *testing.B, req *pb.LookupRouteRequest, holders int) *lookupsvc.Service {
	ctx := context.Background()
	conn := rig.Standalone(b).Client()
	index, err := store.New(store.Options{Redis: conn, Shards: 1})
	require.NoError(b, err)
	require.NoError(b, index.Ready(ctx))
	scope := ranking.Scope{Tenant: req.GetTenantId(), Model: req.GetModelId()}
	for r := range holders + 1 {
		rep := &ranking.Report{Scope: scope, Replica: fmt.Sprint("vllm-7d4f9c-", r), Scheme: req.GetHashScheme()}
		for i, h := range req.GetBlockHashes()[:len(req.GetBlockHashes())-r] {
			if r == holders {
				h = []byte("elsewhere")
			}
			rep.Entries = append(rep.Entries, ranking.Entry{Hash: h, Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1})
		}
		require.NoError(b, index.Report(ctx, rep))
	}
	cached, err := store.NewCached(index, store.CachedOptions{})
	require.NoError(b, err)
	b.Cleanup(cached.Close)
	s, err := lookupsvc.New(lookupsvc.Options{Index: cached, Knobs: ranking.DefaultKnobs(), LookupTimeout: time.Minute,
		Metrics: prometheus.NewRegistry()})
	require.NoError(b, err)
	rig.Eventually(b, 30*time.Second, "answers from memory", func() error {
		q := &ranking.Query{Scope: scope, Space: ranking.Space{Scheme: req.GetHashScheme()}, Hashes: req.GetBlockHashes(),
			Tokens: req.GetBlockTokenCounts(), TTLMS: time.Hour.Milliseconds()}
		var ev ranking.Evidence
		if err := cached.Match(ctx, q, &ev); err != nil || ev.Walked > 0 {
			return fmt.Errorf("%d blocks walked, %w", ev.Walked, err)
		}
		return nil
	})
	return s
}

// listen serves on loopback until the benchmark ends.
func listen(b *testing.B, register func(*grpc.Server), options ...grpc.ServerOption) string {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := grpc.NewServer(options...)
	register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	b.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return l.Addr().String()
}

// connect is gRPC's own client, with one connection.
func connect(b *testing.B, addr string) pb.InferenceCacheClient {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close()) })
	return pb.NewInferenceCacheClient(conn)
}
