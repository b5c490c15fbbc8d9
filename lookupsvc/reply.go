package lookupsvc

import (
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// hintless is a reply without a replica.
func hintless(reason ranking.Reason) *pb.LookupRouteResponse {
	return &pb.LookupRouteResponse{ReasonCode: string(reason)}
}

// reply copies the candidates into messages of their own, two allocations for
// all of them: gRPC reads a reply after the handler has returned, so nothing of
// a pooled lookup may be in it.
func reply(reason ranking.Reason, candidates []ranking.Candidate) *pb.LookupRouteResponse {
	resp := hintless(reason)
	if len(candidates) == 0 {
		return resp
	}
	scores := make([]pb.ReplicaScore, len(candidates))
	resp.ReplicaScores = make([]*pb.ReplicaScore, len(candidates))
	for i := range candidates {
		c, score := &candidates[i], &scores[i]
		score.ReplicaId = c.ReplicaID
		score.Score = c.Score
		score.MatchedTokens = c.MatchedTokens
		score.EstimatedCacheHitProb = c.HitProb
		score.Tier = pb.CacheTier(c.Tier.Wire())
		resp.ReplicaScores[i] = score
	}
	return resp
}
