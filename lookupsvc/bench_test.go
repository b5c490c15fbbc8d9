package lookupsvc

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// instantIndex answers at once with the same evidence, so that what remains is
// the handler's own price.
type instantIndex struct {
	Index
	ev ranking.Evidence
}

func (x *instantIndex) Match(_ context.Context, _ *ranking.Query, ev *ranking.Evidence) error {
	*ev = x.ev
	return nil
}

// BenchmarkLookupRoute prices everything around the index: accounting, input,
// budget, decision and reply. "index alone" is the call that it is to be compared with.
func BenchmarkLookupRoute(b *testing.B) {
	const blocks, holders = 256, 8
	x := &instantIndex{ev: ranking.Evidence{NowMS: baseMS, Asked: blocks, Cached: blocks}}
	for i := range holders {
		x.ev.Serving = append(x.ev.Serving, ranking.Replica{ID: fmt.Sprint("replica-", i)})
		x.ev.Runs = append(x.ev.Runs, ranking.Run{Replica: i, Tokens: int64(16 * (blocks - i)), SeenMS: baseMS - 1000, Blocks: blocks - i})
	}
	s, err := New(Options{Index: x, Knobs: ranking.DefaultKnobs(), Metrics: prometheus.NewRegistry()})
	require.NoError(b, err)
	req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s"}
	for i := range blocks {
		req.BlockHashes = append(req.BlockHashes, []byte(fmt.Sprintf("%08d", i)))
		req.BlockTokenCounts = append(req.BlockTokenCounts, 16)
	}
	tokens := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s", TokenIds: randomIDs(16 * blocks)}
	ctx := context.Background()
	b.Run("chain", func(b *testing.B) { benchLookup(b, s, ctx, req) })
	b.Run("token ids", func(b *testing.B) { benchLookup(b, s, ctx, tokens) })
	b.Run("index alone", func(b *testing.B) {
		b.ReportAllocs()
		var ev ranking.Evidence
		for b.Loop() {
			_ = x.Match(ctx, nil, &ev)
		}
	})
}

func benchLookup(b *testing.B, s *Service, ctx context.Context, req *pb.LookupRouteRequest) {
	b.ReportAllocs()
	for b.Loop() {
		resp, _ := s.LookupRoute(ctx, req)
		if len(resp.GetReplicaScores()) == 0 {
			b.Fatal(resp.GetReasonCode())
		}
	}
}
