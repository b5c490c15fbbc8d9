package wire

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// answer is a reply with n replicas.
func answer(n int) *pb.LookupRouteResponse {
	m := &pb.LookupRouteResponse{ReasonCode: "PREFIX_MATCH", LookupLatencyUs: 42, PackedChains: true}
	for i := range n {
		m.ReplicaScores = append(m.ReplicaScores, &pb.ReplicaScore{ReplicaId: fmt.Sprintf("vllm-7d4f9c-%05d", i),
			Score: 2000.5, MatchedTokens: 4096, EstimatedCacheHitProb: 0.97, Tier: pb.CacheTier_CACHE_TIER_T1})
	}
	return m
}

// byteForByte checks that the codec writes what protobuf writes, errors included.
func byteForByte(t require.TestingT, m *pb.LookupRouteResponse) {
	want, wantErr := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	got, err := Codec{}.Marshal(m)
	if wantErr != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	defer got.Free()
	require.True(t, bytes.Equal(want, got.Materialize()), "%x\n%x", want, got.Materialize())
}

func TestRepliesAreProtobufsByteForByte(t *testing.T) {
	unknown := &pb.LookupRouteResponse{}
	require.NoError(t, proto.Unmarshal([]byte("\x98\x06\x01"), unknown))
	for name, m := range map[string]*pb.LookupRouteResponse{
		"empty": {}, "no hint": {ReasonCode: "NO_HINT", AdapterId: "lora"}, "match": answer(8), "large": answer(300),
		"minus zero":       {ReplicaScores: []*pb.ReplicaScore{{Score: float32(math.Copysign(0, -1))}}},
		"no number":        {ReplicaScores: []*pb.ReplicaScore{{Score: float32(math.NaN())}}},
		"negatives":        {LookupLatencyUs: -1, ReplicaScores: []*pb.ReplicaScore{{MatchedTokens: -1, Tier: -1}}},
		"no replica":       {ReplicaScores: []*pb.ReplicaScore{{}, nil}},
		"token ids":        {TokenIds: []uint32{1, 2}},
		"unknown field":    unknown,
		"code not UTF-8":   {ReasonCode: "\xff"},
		"id not UTF-8":     {ReplicaScores: []*pb.ReplicaScore{{ReplicaId: "\xff"}}},
		"long replica id":  {ReplicaScores: []*pb.ReplicaScore{{ReplicaId: string(bytes.Repeat([]byte("x"), 20_000)), Score: 1}}},
		"adapter no UTF-8": {AdapterId: "\xff"},
	} {
		t.Run(name, func(t *testing.T) { byteForByte(t, m) })
	}
}

func TestAnyReplyIsProtobufsByteForByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &pb.LookupRouteResponse{ReasonCode: rapid.String().Draw(t, "code"), AdapterId: rapid.String().Draw(t, "adapter"),
			LookupLatencyUs: rapid.Int64().Draw(t, "latency"), PackedChains: rapid.Bool().Draw(t, "packed")}
		for range rapid.IntRange(0, 40).Draw(t, "replicas") {
			m.ReplicaScores = append(m.ReplicaScores, &pb.ReplicaScore{
				ReplicaId: rapid.String().Draw(t, "id"), Score: rapid.Float32().Draw(t, "score"),
				MatchedTokens: rapid.Int32().Draw(t, "tokens"), EstimatedCacheHitProb: rapid.Float32().Draw(t, "hit"),
				Tier: pb.CacheTier(rapid.Int32().Draw(t, "tier")),
			})
		}
		byteForByte(t, m)
	})
}
