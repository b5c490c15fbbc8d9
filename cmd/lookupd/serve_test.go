package main

import (
	"bytes"
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

func TestAPodAnswersTheWholeServiceOnItsEmbeddedStore(t *testing.T) {
	p := launch(t)
	p.waitReady()
	ctx := t.Context()
	require.Equal(t, "NO_HINT", p.ask(lookup("t", "a", "b")), "a globally empty index diagnoses nothing")
	require.NoError(t, p.report("t", "r1", "a", "b"))
	resp, err := p.client.LookupRoute(ctx, lookup("t", "a", "b", "c"))
	require.NoError(t, err)
	require.Equal(t, "PREFIX_MATCH", resp.GetReasonCode())
	require.Equal(t, "r1", resp.GetReplicaScores()[0].GetReplicaId())
	require.EqualValues(t, 128, resp.GetReplicaScores()[0].GetMatchedTokens())
	require.Equal(t, "UNKNOWN_TENANT", p.ask(lookup("nobody", "a")))
	require.Equal(t, "AFFINITY_HINT", p.ask(lookup("t", "z")))

	state, err := p.client.GetCacheState(ctx, &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
	require.NoError(t, err)
	require.EqualValues(t, 2, state.GetSummary().GetTotalPrefixes())
	ack, err := p.client.PublishEvent(ctx, &pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, TenantId: "t", ModelId: "m", ReplicaId: "r1"})
	require.NoError(t, err)
	require.True(t, ack.GetAccepted())
	require.NotEqual(t, "PREFIX_MATCH", p.ask(lookup("t", "a", "b")))
	pd, err := p.client.LookupPDRoute(ctx, &pb.LookupPDRouteRequest{})
	require.NoError(t, err)
	require.Equal(t, "NO_HINT", pd.GetReasonCode())

	require.Equal(t, "1", p.metric(`inferencecache_lookup_route_calls_total{hint_used="true",model="m",reason_code="PREFIX_MATCH"}`))
	require.Equal(t, "1", p.metric("inferencecache_server_up"))
	require.Equal(t, "1", p.metric("inferencecache_ready"))
	require.Equal(t, "0", p.metric("inferencecache_server_grpc_tls_enabled"))
	_, metrics := p.get("/metrics")
	for _, family := range []string{"go_goroutines", "process_resident_memory_bytes", "go_build_info", `version="v9.9.9-test"`} {
		require.Contains(t, metrics, family)
	}
}

func TestTheEmbeddedStoreSaysThatItEndsAndWhereItIs(t *testing.T) {
	p := launch(t)
	line := p.waitLog("EMBEDDED STORE")
	require.Equal(t, "WARN", line["level"])
	require.Contains(t, line["msg"], "nothing in the index outlives this process")
	url, _ := line["redis_url"].(string)
	require.True(t, strings.HasPrefix(url, "redis://127.0.0.1:"), url)

	other := launch(t, "--redis", url)
	other.waitReady()
	p.waitReady()
	require.NoError(t, other.report("t", "r1", "a"))
	require.Equal(t, "PREFIX_MATCH", p.ask(lookup("t", "a")), "what another process wrote to the store is there")
}

func TestReflectionAndHealthNameTheServices(t *testing.T) {
	p := launch(t)
	p.waitReady()
	stream, err := reflectionpb.NewServerReflectionClient(p.conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	reply, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, s := range reply.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	require.Contains(t, names, "inferencecache.v1alpha1.InferenceCache")
	require.Contains(t, names, "grpc.health.v1.Health")
	for _, component := range []string{"", "inferencecache.v1alpha1.InferenceCache", "index"} {
		resp, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: component})
		require.NoError(t, err, component)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, resp.GetStatus(), component)
	}
	_, err = healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nonsense"})
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestMessagesUpTo16MiBAreTaken(t *testing.T) {
	p := launch(t, "--lookup-timeout=60s")
	p.waitReady()
	at := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s", PromptText: strings.Repeat("x", 16<<20-64)}
	require.Equal(t, "NO_HINT", p.ask(at))
	require.Equal(t, "1", p.metric(`inferencecache_lookup_rejected_total{reason="no_tokenizer"}`))
	at.PromptText = strings.Repeat("x", 16<<20)
	_, err := p.client.LookupRoute(t.Context(), at)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = p.client.LookupRoute(t.Context(), at, grpc.UseCompressor(gzip.Name))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "small on the wire, large in memory")
	require.Equal(t, "NO_HINT", p.ask(lookup("t", "a")), "the pod goes on")
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string                       { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }

func TestGarbageOnTheWireEndsTheCallAndNothingElse(t *testing.T) {
	p := launch(t)
	p.waitReady()
	for _, method := range []string{"LookupRoute", "PublishEvent", "GetCacheState", "LookupPDRoute", "RenderTemplate"} {
		for _, garbage := range [][]byte{{0xff}, {0x0a, 0x05, 0x61}, {0x00, 0x00}, []byte("GET / HTTP/1.1")} {
			var reply []byte
			err := p.conn.Invoke(t.Context(), "/inferencecache.v1alpha1.InferenceCache/"+method, garbage, &reply, grpc.ForceCodec(rawCodec{}))
			require.Error(t, err, method)
		}
	}
	stream, err := p.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
		"/inferencecache.v1alpha1.InferenceCache/ReportCacheState", grpc.ForceCodec(rawCodec{}))
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg([]byte{0xff}))
	require.NoError(t, stream.CloseSend())
	var reply []byte
	require.Error(t, stream.RecvMsg(&reply))
	err = p.conn.Invoke(t.Context(), "/inferencecache.v1alpha1.InferenceCache/NoSuchMethod", []byte{}, &reply, grpc.ForceCodec(rawCodec{}))
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.Equal(t, "NO_HINT", p.ask(lookup("t", "a")))
	require.Equal(t, "4", p.metric(`inferencecache_lookup_rejected_total{reason="undecodable"}`))
	require.Equal(t, "0", p.metric("inferencecache_panics_total"))
}

func TestRequestsThatMakeNoSenseAreAnswered(t *testing.T) {
	p := launch(t)
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a"))
	long := strings.Repeat("n", 513)
	for reason, req := range map[string]*pb.LookupRouteRequest{
		"unequal_arrays":  {TenantId: "t", ModelId: "m", HashScheme: "s", BlockHashes: [][]byte{{1}}},
		"name_too_long":   {TenantId: long, ModelId: "m", HashScheme: "s", PrefixHash: []byte("a")},
		"hash_too_long":   {TenantId: "t", ModelId: "m", HashScheme: "s", PrefixHash: make([]byte, 129)},
		"too_many_tokens": {TenantId: "t", ModelId: "m", HashScheme: "s", TokenIds: make([]uint32, 1<<20+1)},
		"negative_count":  {TenantId: "t", ModelId: "m", HashScheme: "s", BlockHashes: [][]byte{{1}}, BlockTokenCounts: []int32{-1}},
		"chain_too_long":  {TenantId: "t", ModelId: "m", HashScheme: "s", BlockHashes: make([][]byte, 65_537), BlockTokenCounts: make([]int32, 65_537)},
	} {
		require.Equal(t, "NO_HINT", p.ask(req), reason)
		require.Equal(t, "1", p.metric(`inferencecache_lookup_rejected_total{reason="`+reason+`"}`))
	}
}

func TestTheHTTPPortHasNothingElse(t *testing.T) {
	p := launch(t)
	code, body := p.get("/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	for _, path := range []string{"/", "/debug/pprof/", "/metrics/x", "/readyz/.."} {
		code, _ := p.get(path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
}

func TestVersionIsPrintedByTheBinary(t *testing.T) {
	out, err := exec.CommandContext(context.Background(), binary, "--version").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "lookupd v9.9.9-test (go1")
}
