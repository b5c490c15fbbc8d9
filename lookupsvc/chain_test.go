package lookupsvc

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// inOnePiece is a request whose chain is packed.
func inOnePiece(hashes string, width int32, counts ...int32) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{PackedBlockHashes: []byte(hashes), PackedHashBytes: width, BlockTokenCounts: counts}
}

func TestAPackedChainIsTheChain(t *testing.T) {
	for name, c := range map[string]struct {
		req    *pb.LookupRouteRequest
		tokens []int32
	}{
		"one count for all":       {inOnePiece("aabbcc", 2, 16), []int32{16, 16, 16}},
		"a count for each":        {inOnePiece("aabbcc", 2, 16, 16, 3), []int32{16, 16, 3}},
		"width without effect":    {&pb.LookupRouteRequest{BlockHashes: [][]byte{[]byte("aa"), []byte("bb"), []byte("cc")}, BlockTokenCounts: []int32{1, 2, 3}, PackedHashBytes: 7}, []int32{1, 2, 3}},
		"before a hash and token": {&pb.LookupRouteRequest{PackedBlockHashes: []byte("aabbcc"), PackedHashBytes: 2, BlockTokenCounts: []int32{1}, PrefixHash: []byte("p"), TokenIds: randomIDs(16)}, []int32{1, 1, 1}},
	} {
		in, from, f := resolved(t, c.req, true, 16)
		require.Equal(t, flawNone, f, name)
		require.Equal(t, sourceChain, from, name)
		require.Equal(t, [][]byte{[]byte("aa"), []byte("bb"), []byte("cc")}, in.Hashes, name)
		require.Equal(t, c.tokens, in.Tokens, name)
		sum, _ := total(c.tokens)
		require.Equal(t, sum, in.PrefixTokens, name)
		require.True(t, hasChain(c.req), name)
	}
	in, _, f := resolved(t, inOnePiece("abc", 3, math.MaxInt32), true, 16)
	require.Equal(t, flawNone, f)
	require.EqualValues(t, math.MaxInt32, in.PrefixTokens)
}

func TestAPackedChainThatMakesNoSenseIsRejected(t *testing.T) {
	both := inOnePiece("ab", 1, 1, 1)
	both.BlockHashes = [][]byte{{1}, {2}}
	for name, c := range map[string]struct {
		req  *pb.LookupRouteRequest
		want flaw
	}{
		"beside block hashes":     {both, flawBadPacking},
		"no width":                {inOnePiece("abcd", 0, 16), flawBadPacking},
		"a negative width":        {inOnePiece("abcd", -2, 16), flawBadPacking},
		"a part of a hash":        {inOnePiece("abcde", 2, 16), flawBadPacking},
		"less than a hash":        {inOnePiece("abcd", 8, 16), flawBadPacking},
		"no counts":               {inOnePiece("abcd", 2), flawUnequalArrays},
		"too few counts":          {inOnePiece("abcdef", 2, 16, 16), flawUnequalArrays},
		"too many counts":         {inOnePiece("abcd", 2, 16, 16, 16), flawUnequalArrays},
		"a hash too long":         {inOnePiece(string(make([]byte, 258)), 129, 16), flawHashTooLong},
		"too many blocks":         {inOnePiece(string(make([]byte, 65_537)), 1, 16), flawChainTooLong},
		"a count below zero":      {inOnePiece("abcd", 2, -1), flawNegativeCount},
		"one of them below zero":  {inOnePiece("abcd", 2, 5, -1), flawNegativeCount},
		"counts and no hashes":    {&pb.LookupRouteRequest{PackedHashBytes: 2, BlockTokenCounts: []int32{16}}, flawUnequalArrays},
		"an empty piece, no hash": {&pb.LookupRouteRequest{PackedBlockHashes: []byte{}, PackedHashBytes: 2, BlockTokenCounts: []int32{16}}, flawUnequalArrays},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.holds("r1", "ab", "cd", "")
			resp := r.ask(c.req)
			require.Equal(t, "NO_HINT", resp.GetReasonCode())
			require.True(t, resp.GetPackedChains())
			require.Equal(t, 1, r.value("inferencecache_lookup_rejected_total", prometheus.Labels{"reason": string(c.want)}))
		})
	}
}

func TestPoliciesTreatAPackedChainAsAChain(t *testing.T) {
	r := newRig(t)
	r.holds("r1", "ab", "cd")
	r.setPolicy("t", func(p *ranking.Policy) { p.RequireChain = true })
	require.Equal(t, "PREFIX_MATCH", r.ask(inOnePiece("abcd", 2, 64)).GetReasonCode())
	require.Equal(t, "POLICY_REQUIRES_CHAIN", r.ask(inOnePiece("abcd", 3, 64)).GetReasonCode())

	r.setPolicy("t", func(p *ranking.Policy) { p.ChainMatching = false })
	require.Equal(t, "NO_HINT", r.ask(inOnePiece("abcd", 2, 64)).GetReasonCode())
	beside := inOnePiece("abcd", 2, 64)
	beside.PrefixHash, beside.PrefixTokenCount = []byte("cd"), 128
	require.Equal(t, "PREFIX_MATCH", r.ask(beside).GetReasonCode())
	beside.PrefixHash, beside.PackedHashBytes = []byte("zz"), 3
	require.Equal(t, "NO_HINT", r.ask(beside).GetReasonCode(), "a contradiction gets no affinity hint")
}

func TestAPackedEntryIsTheEntry(t *testing.T) {
	plain, _ := flattened(prefixes(&pb.PrefixEntry{BlockHashes: [][]byte{[]byte("aa"), []byte("bb")}, BlockTokenCounts: []int32{16, 16}, PrefixHash: []byte("p"), TokenCount: 5}))
	for _, counts := range [][]int32{{16}, {16, 16}} {
		packed, drops := flattened(prefixes(&pb.PrefixEntry{PackedBlockHashes: []byte("aabb"), PackedHashBytes: 2, BlockTokenCounts: counts, PrefixHash: []byte("p"), TokenCount: 5}))
		require.Empty(t, drops)
		require.Empty(t, cmp.Diff(plain.Entries, packed.Entries))
	}
	for want, e := range map[flaw]*pb.PrefixEntry{
		flawBadPacking:    {PackedBlockHashes: []byte("aab"), PackedHashBytes: 2, BlockTokenCounts: []int32{16}},
		flawUnequalArrays: {PackedBlockHashes: []byte("aabb"), PackedHashBytes: 2, PrefixHash: []byte("p")},
		flawHashTooLong:   {PackedBlockHashes: make([]byte, 129), PackedHashBytes: 129, BlockTokenCounts: []int32{16}},
		flawNegativeCount: {PackedBlockHashes: []byte("aabb"), PackedHashBytes: 2, BlockTokenCounts: []int32{-16}},
	} {
		r, drops := flattened(prefixes(e))
		require.Nil(t, r)
		require.Equal(t, []flaw{want}, drops)
	}
}

// Requests are read into memory that is used again. None may see another's hashes,
// nor may the index of a lookup that was given up on.
func TestRequestsInFlightKeepTheirBytes(t *testing.T) {
	check := make(chan error, 1000)
	release := make(chan struct{})
	r := newRig(t, within(50*time.Millisecond), matching(func(ctx context.Context, q *ranking.Query, _ *ranking.Evidence) error {
		slow := bytes.HasPrefix(q.Hashes[0], []byte("slow"))
		if slow {
			<-release // deaf to its context
		}
		for i, h := range q.Hashes {
			if want := fmt.Sprintf("%.4s%s%04d", q.Hashes[0], q.Adapter, i); string(h) != want {
				check <- fmt.Errorf("block %d is %q, want %q", i, h, want)
				return nil
			}
		}
		check <- nil
		return nil
	}))
	c := dial(t, r.Service)
	ask := func(kind, adapter string, n int) string {
		req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s", AdapterId: adapter}
		for i := range n {
			req.BlockHashes = append(req.BlockHashes, fmt.Appendf(nil, "%s%s%04d", kind, adapter, i))
			req.BlockTokenCounts = append(req.BlockTokenCounts, 16)
		}
		if n%2 == 0 {
			req.PackedBlockHashes, req.PackedHashBytes = bytes.Join(req.BlockHashes, nil), int32(len(req.BlockHashes[0]))
			req.BlockHashes = nil
		}
		resp, err := c.LookupRoute(context.Background(), req)
		require.NoError(t, err)
		return resp.GetReasonCode()
	}
	const slow, fast = 4, 200
	for i := range slow {
		require.Equal(t, "TIMEOUT", ask("slow", fmt.Sprintf("left%d", i), 300+i))
	}
	for i := range fast {
		ask("fast", fmt.Sprintf("next%03d", i), 250+i)
	}
	close(release)
	for range slow + fast {
		require.NoError(t, <-check)
	}
	require.Eventually(t, func() bool { return r.left.Load() == 0 }, 10*time.Second, time.Millisecond)
}

func TestBothWaysToServeAnswerTheSame(t *testing.T) {
	r := newRig(t)
	r.holds("r1", "ab", "cd")
	r.holds("r2", "ab")
	c := dial(t, r.Service)
	for _, req := range []*pb.LookupRouteRequest{
		chain("ab", "cd"), inOnePiece("abcd", 2, 64), exact("ab", 64), {}, {Slo: &pb.SLO{TtftMs: 100}, TokenIds: randomIDs(32)},
	} {
		want := r.ask(req)
		got, err := c.LookupRoute(context.Background(), req)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&pb.LookupRouteResponse{}, "lookup_latency_us")))
	}
}

// A message of many frames comes in pieces; a compressed one in another buffer.
func TestLargeAndCompressedRequestsArriveWhole(t *testing.T) {
	plain := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s"}
	for i := range 20_000 {
		plain.BlockHashes = append(plain.BlockHashes, fmt.Appendf(nil, "%016d", i))
		plain.BlockTokenCounts = append(plain.BlockTokenCounts, int32(i%300))
	}
	packed := proto.CloneOf(plain)
	packed.PackedBlockHashes, packed.PackedHashBytes, packed.BlockHashes = bytes.Join(plain.BlockHashes, nil), 16, nil
	asked := make(chan ranking.Query, 1)
	r := newRig(t, matching(func(_ context.Context, q *ranking.Query, _ *ranking.Evidence) error {
		copied := ranking.Query{Tokens: slices.Clone(q.Tokens)}
		for _, h := range q.Hashes {
			copied.Hashes = append(copied.Hashes, bytes.Clone(h))
		}
		asked <- copied
		return nil
	}))
	c := dial(t, r.Service)
	for _, req := range []*pb.LookupRouteRequest{plain, packed} {
		for _, o := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
			_, err := c.LookupRoute(context.Background(), req, o...)
			require.NoError(t, err)
			got := <-asked
			require.Equal(t, plain.BlockHashes, got.Hashes)
			require.Equal(t, plain.BlockTokenCounts, got.Tokens)
		}
	}
}

func TestAcksSayThatPackedChainsAreTaken(t *testing.T) {
	r := newRig(t)
	c := dial(t, r.Service)
	ack, err := send(t, c, prefixes(&pb.PrefixEntry{PackedBlockHashes: []byte("abcd"), PackedHashBytes: 2, BlockTokenCounts: []int32{64}}))
	require.NoError(t, err)
	require.True(t, proto.Equal(&pb.Ack{Accepted: true, PackedChains: true}, ack))
	ack, err = c.PublishEvent(context.Background(), &pb.CacheEvent{})
	require.NoError(t, err)
	require.True(t, ack.GetPackedChains())
}
