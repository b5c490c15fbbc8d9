package client

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

func TestChainsArePackedOnceAPodHasSaidThatItTakesThem(t *testing.T) {
	p := newPod(t)
	p.holds(t, "r1", "aa", "bb")
	c := dialPod(t, p.Addr())
	for range 5 {
		r := c.LookupRoute(ctx, request("aa", "bb"))
		requireHint(t, "r1", r)
		require.EqualValues(t, 128, r.Replicas[0].GetMatchedTokens())
	}
	require.EqualValues(t, 1, p.plain.Load())
	require.EqualValues(t, 4, p.packed.Load())

	requireHint(t, "r1", c.LookupRoute(ctx, inOnePiece("aabb", 2, 64)))
	uneven := request("aa", "bb", "ccc") // hashes of two lengths cannot be packed
	requireHint(t, "r1", c.LookupRoute(ctx, uneven))
	require.EqualValues(t, 2, p.plain.Load())

	plain := dialPod(t, p.Addr(), func(o *Options) { o.PlainChains = true })
	for range 3 {
		requireHint(t, "r1", plain.LookupRoute(ctx, request("aa", "bb")))
		requireHint(t, "r1", plain.LookupRoute(ctx, inOnePiece("aabb", 2, 64)))
	}
	require.EqualValues(t, 5, p.packed.Load())
}

// inOnePiece asks for a packed chain.
func inOnePiece(hashes string, width int32, counts ...int32) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s",
		PackedBlockHashes: []byte(hashes), PackedHashBytes: width, BlockTokenCounts: counts}
}

func TestAnOldPodIsAskedInPlain(t *testing.T) {
	p := newPod(t)
	p.old.Store(true)
	p.holds(t, "r1", "aa", "bb")
	c := dialPod(t, p.Addr())
	for range 3 {
		requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
		requireHint(t, "r1", c.LookupRoute(ctx, inOnePiece("aabb", 2, 64, 64)))
	}
	require.Zero(t, p.packed.Load())
	// It is replaced by a new one. What the old one said stands for a while.
	p.old.Store(false)
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	require.Zero(t, p.packed.Load())
	c.packing.plainUntil.Store(time.Now().UnixNano())
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	require.EqualValues(t, 1, p.packed.Load())
}

func TestADowngradeCostsNoHint(t *testing.T) {
	p := newPod(t)
	p.holds(t, "r1", "aa", "bb")
	c := dialPod(t, p.Addr())
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	require.True(t, c.packing.on())
	p.old.Store(true)
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	require.EqualValues(t, 1, p.packed.Load())
	require.False(t, c.packing.on())
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	require.EqualValues(t, 1, p.packed.Load())
}

func TestATierOfMixedVersionsGivesItsHints(t *testing.T) {
	older, newer := newPod(t), newPod(t)
	older.old.Store(true)
	older.holds(t, "r1", "aa", "bb")
	newer.holds(t, "r1", "aa", "bb")
	c := dialPod(t, "all:///pods", allOf(older.Addr(), newer.Addr()))
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 50 {
				requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
			}
		})
	}
	callers.Wait()
	require.Less(t, older.packed.Load(), int64(20), "after the first of its replies")
}

func TestRequestsWithoutAChainAreSentAsTheyAre(t *testing.T) {
	for _, req := range []*pb.LookupRouteRequest{
		{}, {TokenIds: []uint32{1}}, {PrefixHash: []byte("a")}, {BlockTokenCounts: []int32{1}}, {BlockHashes: [][]byte{{1}}},
		{BlockHashes: [][]byte{{}, {}}, BlockTokenCounts: []int32{1, 1}},
		{BlockHashes: [][]byte{{1}, {}}, BlockTokenCounts: []int32{1, 1}},
	} {
		got, packed := packRequest(req)
		require.Same(t, req, got)
		require.False(t, packed)
		require.Same(t, req, unpackRequest(req))
	}
}

func TestPackingThereAndBackChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := &pb.LookupRouteRequest{ModelId: "m", TenantId: "t", HashScheme: "s", AdapterId: "a", PrefixHash: []byte("p"), PrefixTokenCount: 7,
			Slo: &pb.SLO{TtftMs: 5}, TokenIds: []uint32{1}, PromptText: "x"}
		req.ProtoReflect().SetUnknown([]byte("\x98\x06\x01"))
		width := rapid.IntRange(1, 40).Draw(t, "width")
		same := rapid.Bool().Draw(t, "same")
		entry := &pb.PrefixEntry{PrefixHash: []byte("p"), TokenCount: 3, Tier: pb.CacheTier_CACHE_TIER_T2, AdapterId: "a"}
		for range rapid.IntRange(1, 50).Draw(t, "blocks") {
			h := make([]byte, width)
			for i := range h {
				h[i] = byte(rand.Uint32())
			}
			req.BlockHashes = append(req.BlockHashes, h)
			n := int32(16)
			if !same {
				n = rapid.Int32().Draw(t, "count")
			}
			req.BlockTokenCounts = append(req.BlockTokenCounts, n)
		}
		entry.BlockHashes, entry.BlockTokenCounts = req.BlockHashes, req.BlockTokenCounts
		u := &pb.CacheStateUpdate{ReplicaId: "r", ModelId: "m", TenantId: "t", HashScheme: "s", TimestampUs: 5, AdapterId: "a",
			Stats: &pb.ReplicaStats{HitRate: 1}, Prefixes: []*pb.PrefixEntry{{PrefixHash: []byte("q")}, entry, {PrefixHash: []byte("z")}}}
		reqBefore, uBefore := proto.CloneOf(req), proto.CloneOf(u)

		packed, ok := packRequest(req)
		if !ok || len(packed.GetBlockHashes()) > 0 || sensible(packed) != nil {
			t.Fatal("not packed")
		}
		if len(packed.GetBlockTokenCounts()) > 1 && same {
			t.Fatal("one count would do")
		}
		if d := cmp.Diff(reqBefore, unpackRequest(packed), protocmp.Transform()); d != "" {
			t.Fatal(d)
		}
		inOne, ok := packUpdate(u)
		if !ok || inOne == u || len(inOne.GetPrefixes()) != 3 || sensibleUpdate(inOne) != nil {
			t.Fatal("update not packed")
		}
		if d := cmp.Diff(uBefore, unpackUpdate(inOne), protocmp.Transform()); d != "" {
			t.Fatal(d)
		}
		if !proto.Equal(reqBefore, req) || !proto.Equal(uBefore, u) {
			t.Fatal("the caller's message was changed")
		}
	})
}
