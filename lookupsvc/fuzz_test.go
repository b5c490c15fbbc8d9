package lookupsvc

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// FuzzLookupRoute feeds whatever decodes as a request to the handler: the answer
// has a code of the contract, scores only with the codes that stand for them, and
// is counted exactly once.
func FuzzLookupRoute(f *testing.F) {
	ids := randomIDs(64)
	for _, req := range []*pb.LookupRouteRequest{
		{}, {TenantId: "t", ModelId: "m", HashScheme: "s"},
		{TenantId: "t", ModelId: "m", HashScheme: "s", PrefixHash: []byte("a"), PrefixTokenCount: -1},
		{TenantId: "t", ModelId: "m", HashScheme: "s", BlockHashes: [][]byte{[]byte("a"), []byte("b")}, BlockTokenCounts: []int32{64, 64}},
		{TenantId: "t", ModelId: "m", HashScheme: "s", BlockHashes: [][]byte{[]byte("a")}},
		{TenantId: "strict", ModelId: "m", HashScheme: "s", TokenIds: ids},
		{TenantId: "exact", ModelId: "m", HashScheme: "s", TokenIds: ids, Slo: &pb.SLO{TtftMs: -4}},
		{TenantId: ReservedTenant, PromptText: "x", AdapterId: "lora"},
		{TenantId: "t", ModelId: "m", HashScheme: "s", PackedBlockHashes: []byte("ab"), PackedHashBytes: 1, BlockTokenCounts: []int32{64}},
		{TenantId: "strict", ModelId: "m", HashScheme: "s", PackedBlockHashes: []byte("abc"), PackedHashBytes: 2, BlockTokenCounts: []int32{64, 1}},
	} {
		raw, err := proto.Marshal(req)
		require.NoError(f, err)
		f.Add(raw)
	}
	r := newRig(f)
	r.setPolicy("strict", func(p *ranking.Policy) { p.RequireChain = true })
	r.setPolicy("exact", func(p *ranking.Policy) { p.ChainMatching, p.Affinity = false, false })
	r.setPolicy("gated", func(p *ranking.Policy) { p.MinimumPrefixTokens, p.Affinity = 100, false })
	r.holds("r1", "a", "b")
	r.holds("r2", "a", "")
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req pb.LookupRouteRequest
		if proto.Unmarshal(raw, &req) != nil {
			return
		}
		r.t = t
		before := r.value("inferencecache_lookup_route_calls_total", nil)
		resp, err := r.LookupRoute(context.Background(), &req)
		require.NoError(t, err)
		reason := ranking.Reason(resp.GetReasonCode())
		require.True(t, slices.Contains(ranking.Reasons(), reason), reason)
		require.Equal(t, namesReplica(reason), len(resp.GetReplicaScores()) > 0)
		require.Empty(t, resp.GetTokenIds())
		require.Zero(t, r.value("inferencecache_panics_total", nil))
		require.Equal(t, before+1, r.value("inferencecache_lookup_route_calls_total", nil))
		_, err = proto.Marshal(resp)
		require.NoError(t, err)
	})
}

// FuzzReport feeds whatever decodes as an update to the flattening: what comes
// out is within the limits that the index relies on.
func FuzzReport(f *testing.F) {
	for _, u := range []*pb.CacheStateUpdate{
		{}, prefixes(&pb.PrefixEntry{PrefixHash: []byte("a"), TokenCount: 5, Tier: 99}),
		prefixes(&pb.PrefixEntry{BlockHashes: [][]byte{{1}, {2}}, BlockTokenCounts: []int32{1 << 30, 1 << 30}}),
		prefixes(&pb.PrefixEntry{PackedBlockHashes: []byte("abcd"), PackedHashBytes: 2, BlockTokenCounts: []int32{1 << 30}}),
		update(func(u *pb.CacheStateUpdate) { u.Stats, u.TimestampUs = &pb.ReplicaStats{HitRate: 0.5}, -1 }),
	} {
		raw, err := proto.Marshal(u)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var u pb.CacheStateUpdate
		if proto.Unmarshal(raw, &u) != nil {
			return
		}
		r, _ := flattened(&u)
		if r == nil {
			return
		}
		require.NotEqual(t, ReservedTenant, r.Tenant)
		require.NotEmpty(t, r.Tenant)
		require.NotEmpty(t, r.Model)
		require.NotEmpty(t, r.Replica)
		require.GreaterOrEqual(t, r.SeenMS, int64(0))
		for _, e := range r.Entries {
			require.LessOrEqual(t, len(e.Hash), MaxHashBytes)
			require.LessOrEqual(t, len(e.Adapter), MaxNameBytes)
			require.GreaterOrEqual(t, e.Tokens, int32(0))
			require.NotEqual(t, ranking.TierNone, e.Tier)
		}
		if r.Stats != nil {
			require.False(t, math.IsNaN(float64(r.Stats.HitRate)))
		}
	})
}
