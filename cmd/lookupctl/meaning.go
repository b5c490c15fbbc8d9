package main

import (
	"fmt"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// meaning says in a sentence or two what an answer means for this request, and what
// to check if it is not the expected one.
func meaning(req *pb.LookupRouteRequest, reply *pb.LookupRouteResponse) string {
	tenant, model, scheme := cell(req.GetTenantId()), cell(req.GetModelId()), cell(req.GetHashScheme())
	switch ranking.Reason(reply.GetReasonCode()) {
	case ranking.ReasonPrefixMatch:
		return prefixMatch(req, reply)
	case ranking.ReasonTenantHot:
		return "Nobody holds this prefix, but these replicas serve the model and report a good hit rate: a soft hint without any claim of cached tokens. " +
			"If a match was expected, check that gateway and sidecar hash the prompt alike."
	case ranking.ReasonAffinityHint:
		return "No match that counts: the prompt's hash picks one serving replica, so that a repeat meets a warm cache there. " +
			"If a match was expected, check that gateway and sidecar hash alike, and the tenant's minimumPrefixTokens, minimumMatchedTokens and routingFloorScore: " +
			"a prefix that every replica holds scores 0."
	case ranking.ReasonNoHint:
		return noHint(req)
	case ranking.ReasonTimeout:
		return "The budget ran out before there was an answer; route as without the tier. " +
			"The budget is the tightest of the caller's deadline (--timeout), the pod's --lookup-timeout and the policy's lookupTimeoutMs: check the pod's latency to Redis."
	case ranking.ReasonPolicyRequiresChain:
		return fmt.Sprintf("The CachePolicy of %s takes only lookups with a chain of block hashes, and this one has none: have the gateway send block_hashes and block_token_counts.", tenant)
	case ranking.ReasonUnknownTenant:
		return fmt.Sprintf("The index holds nothing for tenant %s, though it does for others: compare the tenant that the gateway sends with the one that the engines' sidecars report under, "+orLapsed, tenant)
	case ranking.ReasonUnknownModel:
		return fmt.Sprintf("Tenant %s holds something, but nothing for model %s: compare the model names of gateway and sidecars, "+orLapsed, tenant, model)
	case ranking.ReasonUnknownHashScheme:
		return fmt.Sprintf("Model %s holds something, but nothing under hash scheme %s: compare the schemes of gateway and sidecars, "+orLapsed, model, scheme)
	default:
		return "This version of lookupctl does not know the code; gateways treat it as NO_HINT."
	}
}

func prefixMatch(req *pb.LookupRouteRequest, reply *pb.LookupRouteResponse) string {
	if len(reply.GetReplicaScores()) == 0 {
		return "A match without a replica: the pod breaks its contract; check its version."
	}
	top := reply.GetReplicaScores()[0]
	matched, of := int64(top.GetMatchedTokens()), int64(0)
	for _, n := range req.GetBlockTokenCounts() {
		of += int64(n)
	}
	if of == 0 {
		of = max(int64(req.GetPrefixTokenCount()), int64(len(req.GetTokenIds())))
	}
	held := grouped(matched) + " tokens"
	if of > 0 {
		held = fmt.Sprintf("%s of %s tokens", grouped(matched), grouped(of))
	}
	return fmt.Sprintf("%s holds the first %s of the prompt: send the request there. If the engine reports fewer hits than that, check that its sidecar keeps up with its evictions.",
		cell(top.GetReplicaId()), held)
}

// noHint has many causes; those that the request itself shows are told apart.
func noHint(req *pb.LookupRouteRequest) string {
	const route = "No opinion; route as without the tier. "
	switch {
	case req.GetTenantId() == reservedTenant:
		return route + "This tenant is reserved for probes: nothing is ever indexed for it."
	case req.GetTenantId() == "":
		return route + "The request names no tenant: give --tenant."
	case req.GetModelId() == "":
		return route + "The request names no model: give --model."
	case req.GetHashScheme() == "":
		return route + "The request names no hash scheme: give --scheme."
	case len(req.GetBlockHashes()) != len(req.GetBlockTokenCounts()):
		return route + "The request has not as many block_token_counts as block_hashes."
	case len(req.GetBlockHashes())+len(req.GetPrefixHash())+len(req.GetTokenIds()) == 0 && req.GetPromptText() != "":
		return route + "A prompt as text needs a tokenizer for the model in the pod: send token ids or hashes."
	case len(req.GetBlockHashes())+len(req.GetPrefixHash()) == 0 && len(req.GetTokenIds()) > 0:
		return route + "Either the token ids are short of one block of the pod's --engine-block-size, or the index is empty, or " + policyCauses + ": try lookupctl explain."
	case len(req.GetBlockHashes())+len(req.GetPrefixHash())+len(req.GetTokenIds()) == 0:
		return route + "The request names no prompt, so it asks for the empty hash, and that gives affinity nothing to pick by: give --chain, --prefix-hash or --tokens."
	case len(req.GetBlockHashes()) > 0 && len(req.GetPrefixHash()) == 0:
		return route + "Either the index is empty or away, or the tenant's policy has enableChainMatching off and the request no --prefix-hash, or " + policyCauses + ": " + whereToLook
	default:
		return route + "Either the index is empty or away, or " + policyCauses + ": " + whereToLook
	}
}

const (
	// orLapsed is the other cause of an UNKNOWN_…: what a replica without a lease holds counts for nothing.
	orLapsed     = "or every replica that holds it has let its lease run out: see lookupctl doctor."
	policyCauses = "nothing matched, or the prompt is below the policy's minimumPrefixTokens, or a floor removed what matched, and in each case the policy has affinityRouting off"
	whereToLook  = "try lookupctl explain, and see inferencecache_lookup_rejected_total and inferencecache_lookup_errors_total on the pod's /metrics."
)

// reservedTenant is set aside by the contract for probes.
const reservedTenant = "inferencecache.io/probe"
