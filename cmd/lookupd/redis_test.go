package main

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/store/embedded"
)

// freeAddress is one that nobody listens on, now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// serveRedis starts a store at addr that ends with the test.
func serveRedis(t *testing.T, addr string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Addr: addr})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestAPodWithoutRedisStartsFailsOpenAndBecomesReadyWithIt(t *testing.T) {
	addr := freeAddress(t)
	p := launch(t, "--redis", "redis://user:hunter2@"+addr)
	p.waitLog("not ready")
	code, body := p.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "refused", "the body says why")
	require.Equal(t, "NO_HINT", p.ask(lookup("t", "a")))
	require.Equal(t, codes.Unavailable, status.Code(p.report("t", "r1", "a")))
	health := healthpb.NewHealthClient(p.conn)
	resp, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, resp.GetStatus())
	require.Equal(t, "0", p.metric("inferencecache_redis_up"))
	require.NotContains(t, p.log(), "hunter2")
}

func TestAPodFollowsRedisAwayAndBack(t *testing.T) {
	addr := freeAddress(t)
	p := launch(t, "--redis", "redis://"+addr)
	p.waitLog("not ready")
	redis := serveRedis(t, addr)
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a"))
	require.Equal(t, "PREFIX_MATCH", p.ask(lookup("t", "a")))

	require.NoError(t, redis.Close())
	require.Eventually(t, func() bool {
		code, _ := p.get("/readyz")
		return code == http.StatusServiceUnavailable
	}, generous, 10*time.Millisecond)
	require.Eventually(t, func() bool { // memory may answer for a while
		return p.ask(lookup("t", "novel")) == "NO_HINT"
	}, generous, 50*time.Millisecond)
	err := p.report("t", "r1", "b")
	require.Equal(t, codes.Unavailable, status.Code(err))
	health, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "inferencecache.v1alpha1.InferenceCache"})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health.GetStatus(), "lookups fail open: callers may stay")

	serveRedis(t, addr) // a new one: empty, without scripts and layout
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a"))
	require.Eventually(t, func() bool { return p.ask(lookup("t", "a")) == "PREFIX_MATCH" }, generous, 10*time.Millisecond)
}

func TestAPodRefusesAnIndexLaidOutInAnotherWay(t *testing.T) {
	redis := serveRedis(t, "127.0.0.1:0")
	launch(t, "--redis", redis.URL(), "--shards=1").waitReady()
	p := spawn(t, "--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0", "--redis", redis.URL(), "--shards=4")
	require.Equal(t, exitFailure, p.waitExit())
	last := p.log()[strings.LastIndexByte(p.log(), '\n')+1:]
	require.True(t, strings.HasPrefix(last, "lookupd: layout mismatch"), last)
	require.Contains(t, last, "--shards 1")
}

func TestATakenPortEndsTheStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, flag := range []string{"--grpc-bind-address", "--http-bind-address", "--embedded-redis-bind-address"} {
		args := []string{"--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0", flag, l.Addr().String()}
		p := spawn(t, args...)
		require.Equal(t, exitFailure, p.waitExit(), flag)
		require.Contains(t, p.log(), "lookupd: "+flag)
		require.Contains(t, p.log(), "address already in use")
	}
}

func TestAnEmbeddedStoreForTheWholeNetworkIsRefused(t *testing.T) {
	p := spawn(t, "--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0", "--embedded-redis-bind-address=0.0.0.0:0")
	require.Equal(t, exitUsage, p.waitExit())
	require.Contains(t, p.log(), "loopback")
}

func TestARedisThatHangsCostsNoLookupMoreThanItsBudget(t *testing.T) {
	redis := serveRedis(t, "127.0.0.1:0")
	proxy := rig.NewProxy(t, redis.Addr())
	p := launch(t, "--redis", "redis://"+proxy.Addr(), "--lookup-timeout=50ms", "--cache=off")
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a"))
	proxy.Pause()
	for range 20 {
		resp, err := p.client.LookupRoute(t.Context(), lookup("t", "novel"))
		require.NoError(t, err)
		require.Equal(t, "TIMEOUT", resp.GetReasonCode())
		require.Empty(t, resp.GetReplicaScores())
	}
	require.Eventually(t, func() bool {
		_, body := p.get("/readyz")
		return strings.HasPrefix(body, "not ready: ")
	}, generous, 10*time.Millisecond)
	require.Equal(t, "20", p.metric(`inferencecache_lookup_route_calls_total{hint_used="false",model="m",reason_code="TIMEOUT"}`))
	proxy.Resume()
	p.waitReady()
	require.Eventually(t, func() bool { return p.ask(lookup("t", "a")) == "PREFIX_MATCH" }, generous, 10*time.Millisecond)
	require.Equal(t, "0", p.metric("inferencecache_lookup_abandoned_calls"))
}

func TestWhatAPodRemembersItAnswersWhileRedisHangs(t *testing.T) {
	redis := serveRedis(t, "127.0.0.1:0")
	proxy := rig.NewProxy(t, redis.Addr())
	p := launch(t, "--redis", "redis://"+proxy.Addr(), "--max-staleness=60s")
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a", "b"))
	require.Eventually(t, func() bool { // the pod follows the log, and has no need of Redis
		before := p.metric("inferencecache_cache_reads_total")
		return p.ask(lookup("t", "a", "b")) == "PREFIX_MATCH" && p.metric("inferencecache_cache_reads_total") == before
	}, generous, 10*time.Millisecond)
	proxy.Pause()
	require.Eventually(t, func() bool {
		_, body := p.get("/readyz")
		return strings.HasPrefix(body, "not ready: ")
	}, generous, 10*time.Millisecond)
	require.Equal(t, "PREFIX_MATCH", p.ask(lookup("t", "a", "b")))
	require.NotEqual(t, "0", p.metric("inferencecache_lookup_degraded_total"))
	proxy.Resume()
	p.waitReady()
	p.signal()
	require.Equal(t, exitOK, p.waitExit())
}
