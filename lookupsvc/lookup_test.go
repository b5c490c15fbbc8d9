package lookupsvc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

const longTimeout = 30 * time.Second

func TestTheReservedTenantIsNeverAnswered(t *testing.T) {
	r := newRig(t)
	req := chain("a")
	req.TenantId = ReservedTenant
	resp := r.ask(req)
	require.Equal(t, "NO_HINT", resp.GetReasonCode())
	require.Equal(t, 1, r.value("inferencecache_lookup_rejected_total", prometheus.Labels{"reason": "reserved_tenant"}))
	require.Empty(t, r.log.String(), "a probe is no news")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Equal(t, "NO_HINT", r.askCtx(ctx, req).GetReasonCode(), "before the budget is looked at")
}

func TestRequireChainComesBeforeInput(t *testing.T) {
	r := newRig(t)
	r.setPolicy("t", func(p *ranking.Policy) { p.RequireChain = true })
	r.holds("r1", "a", "b")
	for name, req := range map[string]*pb.LookupRouteRequest{
		"hash":    exact("a", 64),
		"tokens":  {TokenIds: randomIDs(64)},
		"text":    {PromptText: "hello"},
		"nothing": {},
		"unequal": {BlockHashes: [][]byte{[]byte("a")}},
	} {
		resp := r.ask(req)
		require.Equal(t, "POLICY_REQUIRES_CHAIN", resp.GetReasonCode(), name)
		require.Empty(t, resp.GetReplicaScores(), name)
	}
	require.Equal(t, "PREFIX_MATCH", r.ask(chain("a", "b")).GetReasonCode())
}

func TestAnEmptyKeyIsNoHintAndEchoesTheAdapter(t *testing.T) {
	r := newRig(t)
	r.holds("r1", "a")
	for _, strip := range []func(*pb.LookupRouteRequest){
		func(q *pb.LookupRouteRequest) { q.TenantId = "" },
		func(q *pb.LookupRouteRequest) { q.ModelId = "" },
		func(q *pb.LookupRouteRequest) { q.HashScheme = "" },
	} {
		req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s", PrefixHash: []byte("a"),
			PrefixTokenCount: 64, AdapterId: "lora"}
		strip(req)
		resp, err := r.LookupRoute(context.Background(), req)
		require.NoError(t, err)
		require.Equal(t, "NO_HINT", resp.GetReasonCode())
		require.Equal(t, "lora", resp.GetAdapterId())
	}
}

func TestTheAdapterIsEchoedOnlyWhenTheIndexWasConsulted(t *testing.T) {
	r := newRig(t)
	r.setPolicy("strict", func(p *ranking.Policy) { p.RequireChain = true })
	r.setPolicy("gated", func(p *ranking.Policy) { p.MinimumPrefixTokens, p.Affinity = 1000, false })
	r.holds("r1", "a")
	with := func(req *pb.LookupRouteRequest, tenant string) *pb.LookupRouteRequest {
		req.AdapterId, req.TenantId = "lora", tenant
		return req
	}
	for name, c := range map[string]struct {
		req  *pb.LookupRouteRequest
		code string
		echo string
	}{
		"a novel prefix":        {with(chain("z"), "t"), "AFFINITY_HINT", "lora"},
		"an unknown tenant":     {with(chain("z"), "nobody"), "UNKNOWN_TENANT", "lora"},
		"reserved":              {with(chain("z"), ReservedTenant), "NO_HINT", ""},
		"a chain was required":  {with(exact("a", 64), "strict"), "POLICY_REQUIRES_CHAIN", ""},
		"no tokenizer":          {with(&pb.LookupRouteRequest{PromptText: "x"}, "t"), "NO_HINT", ""},
		"too short, no pinning": {with(chain("a"), "gated"), "NO_HINT", ""},
	} {
		resp := r.ask(c.req)
		require.Equal(t, c.code, resp.GetReasonCode(), name)
		require.Equal(t, c.echo, resp.GetAdapterId(), name)
		require.Empty(t, resp.GetTokenIds(), name)
	}
}

func TestAMatchCarriesEverythingThatIsKnown(t *testing.T) {
	r := newRig(t)
	r.holds("r1", "a", "b", "c")
	r.holds("r2", "a")
	r.holds("r3", "other")
	r.nowMS += (15 * time.Minute).Milliseconds()
	resp := r.ask(chain("a", "b", "c", "d"))
	require.Equal(t, "PREFIX_MATCH", resp.GetReasonCode())
	require.Len(t, resp.GetReplicaScores(), 2)
	best := resp.GetReplicaScores()[0]
	require.Equal(t, "r1", best.GetReplicaId())
	require.EqualValues(t, 192, best.GetMatchedTokens())
	require.InDelta(t, 0.5, best.GetEstimatedCacheHitProb(), 1e-6)
	require.InDelta(t, 192*0.5*(1-1.0/3), best.GetScore(), 1e-3)
	require.Equal(t, pb.CacheTier_CACHE_TIER_T1, best.GetTier())
	require.Equal(t, "r2", resp.GetReplicaScores()[1].GetReplicaId())
	require.Positive(t, resp.GetLookupLatencyUs()+1)
}

func TestAPolicysTTLBoundsFreshness(t *testing.T) {
	r := newRig(t)
	r.setPolicy("t", func(p *ranking.Policy) { p.EvictionTTL = time.Hour })
	r.holds("r1", "a")
	r.nowMS += (30 * time.Minute).Milliseconds()
	require.InDelta(t, 0.5, r.ask(chain("a")).GetReplicaScores()[0].GetEstimatedCacheHitProb(), 1e-6)
	r.setPolicy("t", func(p *ranking.Policy) { p.EvictionTTL = time.Microsecond })
	r.nowMS++
	require.Equal(t, "AFFINITY_HINT", r.ask(chain("a")).GetReasonCode(), "a TTL below the clock's resolution is still one")
}

func TestTheSLOReachesTheScore(t *testing.T) {
	r := newRig(t)
	r.holds("r1", "a")
	tight := chain("a")
	tight.Slo = &pb.SLO{TtftMs: 50}
	require.InDelta(t, 128, r.ask(tight).GetReplicaScores()[0].GetScore(), 1e-3)
	require.InDelta(t, 64, r.ask(chain("a")).GetReplicaScores()[0].GetScore(), 1e-3)
}

func TestARequestThatContradictsItselfIsNotPinned(t *testing.T) {
	r := newRig(t)
	r.setPolicy("t", func(p *ranking.Policy) { p.ChainMatching = false })
	r.holds("r1", "a")
	req := exact("novel", 64)
	req.BlockTokenCounts = []int32{1}
	require.Equal(t, "NO_HINT", r.ask(req).GetReasonCode())
	req.BlockTokenCounts = nil
	require.Equal(t, "AFFINITY_HINT", r.ask(req).GetReasonCode())
	req = exact("a", 64)
	req.BlockTokenCounts = []int32{1}
	require.Equal(t, "PREFIX_MATCH", r.ask(req).GetReasonCode(), "a real match stands")
}

func TestEveryCallCountsOnce(t *testing.T) {
	r := newRig(t)
	r.holds("r1", "a")
	asks := []*pb.LookupRouteRequest{
		chain("a"), chain("novel"), exact("a", 64), {}, {PromptText: "x"}, {TokenIds: randomIDs(3)},
		{TenantId: "nobody"}, {ModelId: "none"}, {HashScheme: "none"}, {TenantId: ReservedTenant},
		{BlockHashes: [][]byte{{1}}}, {AdapterId: strings.Repeat("x", 513)},
	}
	for i, req := range asks {
		resp := r.ask(req)
		require.Equal(t, i+1, r.value("inferencecache_lookup_route_calls_total", nil))
		require.Equal(t, i+1, r.value("inferencecache_lookup_route_latency_seconds", nil))
		hint := "false"
		if len(resp.GetReplicaScores()) > 0 {
			hint = "true"
		}
		require.Positive(t, r.value("inferencecache_lookup_route_calls_total", prometheus.Labels{
			"model": req.GetModelId(), "reason_code": resp.GetReasonCode(), "hint_used": hint}))
	}
}

func TestANilRequestIsAnswered(t *testing.T) {
	r := newRig(t)
	resp, err := r.LookupRoute(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, "NO_HINT", resp.GetReasonCode())
}
