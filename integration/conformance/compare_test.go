package conformance_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/conformance"
)

func reply() *pb.LookupRouteResponse {
	return &pb.LookupRouteResponse{
		ReasonCode: "PREFIX_MATCH", AdapterId: "a", TokenIds: []uint32{1, 2},
		ReplicaScores: []*pb.ReplicaScore{
			{ReplicaId: "r2", Score: 90, MatchedTokens: 100, EstimatedCacheHitProb: 0.9, Tier: pb.CacheTier_CACHE_TIER_T1},
			{ReplicaId: "r1", Score: 50, MatchedTokens: 64, EstimatedCacheHitProb: 0.5, Tier: pb.CacheTier_CACHE_TIER_T2},
		},
	}
}

func TestCompareLookupSeesEveryDifference(t *testing.T) {
	require.NoError(t, conformance.CompareLookup(reply(), reply()))
	for name, change := range map[string]func(*pb.LookupRouteResponse){
		"reason NO_HINT":      func(r *pb.LookupRouteResponse) { r.ReasonCode = "NO_HINT" },
		"adapter":             func(r *pb.LookupRouteResponse) { r.AdapterId = "" },
		"1 token ids":         func(r *pb.LookupRouteResponse) { r.TokenIds = r.TokenIds[:1] },
		"r1 is missing":       func(r *pb.LookupRouteResponse) { r.ReplicaScores = r.ReplicaScores[:1] },
		"should not be there": func(r *pb.LookupRouteResponse) { r.ReplicaScores[1].ReplicaId = "r3" },
		"twice":               func(r *pb.LookupRouteResponse) { r.ReplicaScores[1] = proto.CloneOf(r.ReplicaScores[0]) },
		"matched tokens 101":  func(r *pb.LookupRouteResponse) { r.ReplicaScores[0].MatchedTokens++ },
		"tier CACHE_TIER_T3":  func(r *pb.LookupRouteResponse) { r.ReplicaScores[0].Tier = pb.CacheTier_CACHE_TIER_T3 },
		"score 90.5, want 90": func(r *pb.LookupRouteResponse) { r.ReplicaScores[0].Score = 90.5 },
		"probability 0.905":   func(r *pb.LookupRouteResponse) { r.ReplicaScores[0].EstimatedCacheHitProb = 0.905 },
		"not best first":      func(r *pb.LookupRouteResponse) { s := r.ReplicaScores; s[0], s[1] = s[1], s[0] },
		"latency of -1":       func(r *pb.LookupRouteResponse) { r.LookupLatencyUs = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			got := reply()
			change(got)
			require.ErrorContains(t, conformance.CompareLookup(reply(), got), name)
		})
	}
}

func TestCompareLookupAllowsFreshnessToMove(t *testing.T) {
	got := reply()
	got.LookupLatencyUs = 77
	got.ReplicaScores[0].Score -= 0.4
	got.ReplicaScores[0].EstimatedCacheHitProb -= 0.003
	require.NoError(t, conformance.CompareLookup(reply(), got))
}

func TestCompareLateAllowsForNoMoreThanTheTimeThatWasLost(t *testing.T) {
	hot := func(score float32) *pb.LookupRouteResponse {
		return &pb.LookupRouteResponse{ReasonCode: "TENANT_HOT", ReplicaScores: []*pb.ReplicaScore{
			{ReplicaId: "a", Score: score, EstimatedCacheHitProb: 0.8},
		}}
	}
	want, got := hot(1.6), hot(1.6-0.0128) // what a tight SLO loses in 2 s, a little less
	require.ErrorContains(t, conformance.CompareLookup(want, got), "score")
	require.NoError(t, conformance.CompareLate(want, got, 2*time.Second))
	require.ErrorContains(t, conformance.CompareLate(want, hot(1.5), 2*time.Second), "score")
}

func TestCompareLookupWantsTiesByID(t *testing.T) {
	tied := reply()
	tied.ReplicaScores[0].Score = tied.ReplicaScores[1].Score
	require.ErrorContains(t, conformance.CompareLookup(tied, tied), "ties by id")
}

func TestCompareStateSeesEveryDifference(t *testing.T) {
	state := func() *pb.GetCacheStateResponse {
		return &pb.GetCacheStateResponse{
			Summary:  &pb.CacheSummary{TotalPrefixes: 3},
			Replicas: []*pb.ReplicaStats{{ReplicaId: "r1", CacheMemoryBytes: 1, HitRate: 0.5, Pressure: 0.25, ClientVersion: "v", T2HitTokens: 2, T2QueryTokens: 3}},
		}
	}
	require.NoError(t, conformance.CompareState(state(), state()))
	for name, change := range map[string]func(*pb.GetCacheStateResponse){
		"2 prefixes, want 3":  func(s *pb.GetCacheStateResponse) { s.Summary.TotalPrefixes = 2 },
		"are missing":         func(s *pb.GetCacheStateResponse) { s.Replicas = nil },
		"twice":               func(s *pb.GetCacheStateResponse) { s.Replicas = append(s.Replicas, s.Replicas[0]) },
		"should not be there": func(s *pb.GetCacheStateResponse) { s.Replicas = append(s.Replicas, &pb.ReplicaStats{ReplicaId: "x"}) },
		"hit_rate:0.6":        func(s *pb.GetCacheStateResponse) { s.Replicas[0].HitRate = 0.6 },
		"client_version":      func(s *pb.GetCacheStateResponse) { s.Replicas[0].ClientVersion = "" },
		"t2_query_tokens:4":   func(s *pb.GetCacheStateResponse) { s.Replicas[0].T2QueryTokens = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			got := state()
			change(got)
			require.ErrorContains(t, conformance.CompareState(state(), got), name)
		})
	}
}

func TestLoadRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, text := range map[string]string{
		"unknown field":   `[{"name":"n","steps":[],"colour":"red"}]`,
		"0 requests":      `[{"name":"n","steps":[{"age_ms":1}]}]`,
		"2 requests":      `[{"name":"n","steps":[{"report":{},"event":{}}]}]`,
		"expects nothing": `[{"name":"n","steps":[{"report":{},"expect":{}}]}]`,
		`"unknown_name"`:  `[{"name":"n","steps":[{"lookup":{"unknown_name":1},"expect":{}}]}]`,
		"unexpected":      `[{"name":"n","steps":[{"lookup":{}}]}]`, // no expectation
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.json")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			_, err := conformance.Load(path)
			require.ErrorContains(t, err, name)
		})
	}
}
