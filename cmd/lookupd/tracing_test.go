package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/store"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	callerID = "b7ad6b7169203331"
)

// spansOf waits until the collector has so many spans of the caller's trace.
func (c *collector) spansOf(t *testing.T, id string, n int) []*tracepb.Span {
	t.Helper()
	var spans []*tracepb.Span
	require.Eventually(t, func() bool {
		spans = c.trace(id)
		return len(spans) >= n
	}, generous, 10*time.Millisecond)
	require.Len(t, spans, n)
	slices.SortFunc(spans, func(a, b *tracepb.Span) int {
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano()))
	})
	return spans
}

func TestTheTreeOfALookupReachesTheCollector(t *testing.T) {
	c := startCollector(t, false)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(
		"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: own}\nspec: {minimumMatchedTokens: 1}\n"), 0o600))
	p := launchWith(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_BSP_SCHEDULE_DELAY=20",
		"OTEL_TRACES_SAMPLER=parentbased_always_off", "OTEL_SERVICE_NAME=lookups", "OTEL_RESOURCE_ATTRIBUTES=zone=z1"},
		"--policy-dir", dir, "--lookup-timeout=60s", "--shards=2")
	p.waitReady()
	secret := "a-hash-of-a-prompt"
	require.NoError(t, p.report("own", "r1", secret, "b"))
	// Both shards have something, so that both are remembered.
	other := "r2"
	for store.ShardOf(other, 2) == store.ShardOf("r1", 2) {
		other += "2"
	}
	require.NoError(t, p.report("own", other, "z"))
	traced := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+callerID+"-01")
	resp, err := p.client.LookupRoute(traced, lookup("own", secret, "b", "c"))
	require.NoError(t, err)
	require.Equal(t, "PREFIX_MATCH", resp.GetReasonCode())

	spans := c.spansOf(t, traceID, 6)
	lines := tree(spans, callerID, 0)
	slices.Sort(lines[3:5]) // the two shards are asked at the same time
	require.Equal(t, []string{
		"inferencecache.v1alpha1.InferenceCache/LookupRoute rpc.system=grpc rpc.service=inferencecache.v1alpha1.InferenceCache rpc.method=LookupRoute" +
			" inferencecache.model=m inferencecache.policy=own" +
			" inferencecache.blocks.asked=3 inferencecache.blocks.cached=0 inferencecache.blocks.walked=3 inferencecache.degraded=false inferencecache.partial=false" +
			" inferencecache.reason_code=PREFIX_MATCH inferencecache.replicas=1 inferencecache.matched_tokens=128 rpc.grpc.status_code=0",
		"  lookup.input inferencecache.input=chain",
		"  lookup.cache inferencecache.blocks.asked=3 inferencecache.blocks.cached=0 inferencecache.blocks.walked=3 inferencecache.degraded=false inferencecache.partial=false",
		"    redis.walk inferencecache.shard=0 inferencecache.blocks.asked=3 inferencecache.blocks.held=" + heldIn(lines, 0),
		"    redis.walk inferencecache.shard=1 inferencecache.blocks.asked=3 inferencecache.blocks.held=" + heldIn(lines, 1),
		"  lookup.rank inferencecache.serving=2",
	}, lines)
	require.Equal(t, "lookups", c.resource["service.name"])
	require.Equal(t, "z1", c.resource["zone"])
	require.Equal(t, "v9.9.9-test", c.resource["service.version"])
	for _, s := range spans {
		raw, err := proto.Marshal(s)
		require.NoError(t, err)
		require.False(t, bytes.Contains(raw, []byte(secret)), "no hash leaves the pod")
	}

	// Memory answers now: no walk, and the default policy.
	const second = "1af7651916cd43dd8448eb211c80319c"
	require.Eventually(t, func() bool { return p.metric(`inferencecache_cache_partitions{state="live"}`) == "2" }, generous, 10*time.Millisecond)
	again := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+second+"-"+callerID+"-01")
	_, err = p.client.LookupRoute(again, lookup("own", secret, "b", "c"))
	require.NoError(t, err)
	c.spansOf(t, second, 4)

	// Nobody asked for a trace of these.
	require.Equal(t, "NO_HINT", p.ask(&pb.LookupRouteRequest{TenantId: "x", ModelId: "m", HashScheme: "s", PromptText: "x"}))
	require.Equal(t, "10", p.metric(`inferencecache_trace_spans_total{state="ended"}`))
	p.signal()
	require.Equal(t, exitOK, p.waitExit())
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Len(t, c.spans, 10)
}

// heldIn is what the walk of a shard says that it held: the replica is in one of the two.
func heldIn(lines []string, shard int) string {
	for i, held := range []string{"2", "0"} {
		if strings.HasSuffix(lines[3], "held="+held) {
			return []string{held, []string{"0", "2"}[i]}[shard]
		}
	}
	return "?"
}

func TestARejectedLookupTellsWhyInItsTrace(t *testing.T) {
	c := startCollector(t, false)
	p := launchWith(t, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + c.url, "OTEL_BSP_SCHEDULE_DELAY=20"})
	p.waitReady()
	traced := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+callerID+"-01")
	_, err := p.client.LookupRoute(traced, &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s", PromptText: "tell nobody"})
	require.NoError(t, err)
	lines := tree(c.spansOf(t, traceID, 2), callerID, 0)
	require.Equal(t, "  lookup.input inferencecache.input=prompt_text inferencecache.rejected=no_tokenizer", lines[1])
	require.Contains(t, lines[0], "inferencecache.policy=default inferencecache.reason_code=NO_HINT")
	require.Equal(t, "lookupd", c.resource["service.name"])
}

func TestTheLatencyHistogramNamesASampledTrace(t *testing.T) {
	c := startCollector(t, false)
	p := launchWith(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url})
	p.waitReady()
	traced := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+callerID+"-01")
	_, err := p.client.LookupRoute(traced, lookup("t", "a"))
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.http+"/metrics", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Regexp(t, `inferencecache_lookup_route_latency_seconds_bucket\{model="m",le="[^"]+"\} 1 # \{trace_id="`+traceID+`"\}`, string(body))
}

func TestACollectorThatHangsCostsNoLookupAndNoShutdown(t *testing.T) {
	c := startCollector(t, true)
	p := launchWith(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_TRACES_SAMPLER=always_on",
		"OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16"}, "--lookup-timeout=60s")
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a"))
	const lookups = 1000 // many times what the queue takes
	for range lookups {
		require.Equal(t, "PREFIX_MATCH", p.ask(lookup("t", "a")))
	}
	<-c.asked
	require.Equal(t, "0", p.metric(`inferencecache_trace_spans_total{state="exported"}`))
	require.Equal(t, "1000", p.metric(`inferencecache_lookup_route_calls_total{hint_used="true",model="m",reason_code="PREFIX_MATCH"}`))
	p.signal()
	require.Equal(t, exitOK, p.waitExit())
	p.waitLog("the last spans were not sent")
	p.waitLog("stopped")
}

func TestACollectorThatIsAwayCostsNoLookup(t *testing.T) {
	p := launchWith(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=1"})
	p.waitReady()
	require.Equal(t, "NO_HINT", p.ask(lookup("t", "a")))
	p.signal()
	require.Equal(t, exitOK, p.waitExit())
}

func TestTracingIsOffWithoutAnEndpoint(t *testing.T) {
	for _, env := range [][]string{
		nil, {"OTEL_TRACES_SAMPLER=always_on"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none"},
	} {
		p := launchWith(t, env)
		p.waitReady()
		require.Equal(t, "NO_HINT", p.ask(lookup("t", "a")))
		require.NotContains(t, p.log(), "traces are sent")
		require.Equal(t, "0", p.metric(`inferencecache_trace_spans_total{state="ended"}`))
	}
}

func TestTracingVariablesThatMakeNoSenseEndThePod(t *testing.T) {
	for want, env := range map[string][]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT is no URL of a collector: write http://host:4317": {"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317"},
		`OTEL_EXPORTER_OTLP_PROTOCOL is "http/protobuf": write grpc`:                   {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
		`OTEL_TRACES_SAMPLER is "some": write one of always_on`:                        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "OTEL_TRACES_SAMPLER=some"},
		`OTEL_TRACES_SAMPLER_ARG is "5": write the share`:                              {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=5"},
		`OTEL_TRACES_EXPORTER is "zipkin": write otlp or none`:                         {"OTEL_TRACES_EXPORTER=zipkin"},
	} {
		p := spawnWith(t, env, "--grpc-bind-address", "127.0.0.1:0", "--http-bind-address", "127.0.0.1:0")
		require.Equal(t, exitUsage, p.waitExit())
		require.Contains(t, p.log(), want)
	}
}

func TestACallThatFailsIsAnErrorInItsTrace(t *testing.T) {
	c := startCollector(t, false)
	p := launchWith(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_BSP_SCHEDULE_DELAY=20"}, "--redis=redis://127.0.0.1:1")
	traced := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+callerID+"-01")
	_, err := p.client.GetCacheState(traced, &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
	require.Error(t, err)
	span := c.spansOf(t, traceID, 1)[0]
	require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, span.GetStatus().GetCode())
	require.Equal(t, codes.Unavailable.String(), span.GetStatus().GetMessage())
}
