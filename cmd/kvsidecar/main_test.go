package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/publisher"
	"inferencecache.io/lookuptier/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		// The client of a Redis that is away dials once a second, and sees then that it was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

var identity = []string{"--replica-id=r", "--model-id=m", "--tenant-id=t", "--hash-scheme=vllm", "--redis=redis://localhost"}

func TestAFlagThatMakesNoSenseEndsWithOneLineThatSaysWhatToWrite(t *testing.T) {
	for args, want := range map[string]string{
		"--redis=localhost":             "--redis",
		"--lease=10ms":                  "at least 1s",
		"--lease=15":                    "a number with its unit",
		"--ttl=0s":                      "evictionTTL",
		"--refresh=25m":                 "age out",
		"--ttl=25h":                     "longer --key-ttl",
		"--on-exit=burn":                `"retire","keep"`,
		"--http-bind-address=8081":      "host:port",
		"--medium-tiers=DISK=T9":        "T1, T2 or T3",
		"--lora-adapter-names=x=y":      "--lora-adapter-names",
		"--max-concurrency-ceiling=0":   "more than 0",
		"--max-concurrency-ceiling=NaN": "more than 0",
		"--batch-size=0":                "1 to 100000",
		"--data-parallel-size=0":        "1 to 1024",
		"--data-parallel-size=2 --engine-endpoint=tcp://a:1,tcp://b:2": "give one",
		"--stats-interval=1ms":                         "at least 100ms",
		"--nonsense":                                   "kvsidecar --help",
		"--engine-endpoint=localhost:5557":             `--engine-endpoint: endpoint "localhost:5557": want tcp://host:port`,
		"--engine-endpoint=":                           "--engine-endpoint",
		"--engine-replay-endpoint=a":                   `--engine-replay-endpoint: endpoint "a": want tcp://host:port`,
		"--engine-endpoint=tcp://a:1,tcp://a:1":        "--engine-endpoint: tcp://a:1 is given twice",
		"--shards=0":                                   "--shards is 0: write 1 to 1024",
		"--shards=1025":                                "--shards is 1025: write 1 to 1024",
		"--window=61s":                                 "--window is 1m1s: write 0s to 1m",
		"--window=-5ms":                                "--window",
		"--engine-metrics-url=localhost":               "want http://",
		"--engine-replay-endpoint=tcp://a:1,tcp://a:2": "one for each",
		"--tenant-id=inferencecache.io/probe":          "reserved",
		"--replica-id=" + strings.Repeat("x", 513):     "512",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(append([]string{"--log-level=error"}, identity...), strings.Fields(args)...), &out, &errs)
		require.Equal(t, exitUsage, code, "%s: %s", args, errs.String())
		require.Contains(t, errs.String(), want, args)
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), args)
	}
}

func TestAMissingIdentityIsRefusedByName(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), nil, &out, &errs))
	for _, flag := range []string{"--replica-id", "--model-id", "--tenant-id", "--hash-scheme", "--redis"} {
		require.Contains(t, errs.String(), flag)
	}
}

func TestTheClientSendsNothingAgainByItself(t *testing.T) {
	c, _, done := parse(identity, io.Discard, io.Discard)
	require.False(t, done)
	require.NotNil(t, c.dial().MaxRetries, "nil is the default: once")
	require.Zero(t, *c.dial().MaxRetries)
}

func TestAnExitWithoutRedisSaysThatNothingWasWritten(t *testing.T) {
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	logs := &buffer{}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"--redis=redis://127.0.0.1:1", "--engine-endpoint=tcp://127.0.0.1:1", "--engine-metrics-url=",
			"--http-bind-address=127.0.0.1:0"}, identity[:4]...), io.Discard, logs)
	}()
	require.Eventually(t, func() bool { return strings.Contains(logs.String(), `"following"`) }, 30*time.Second, 5*time.Millisecond)
	terminate()
	require.Equal(t, exitFailure, <-code)
	require.Contains(t, logs.String(), "this sidecar has written nothing for it")
	require.NotContains(t, logs.String(), "it serves until")
}

func TestEveryFlagHasAVariable(t *testing.T) {
	t.Setenv("KVSIDECAR_REPLICA_ID", "from-env")
	t.Setenv("KVSIDECAR_ENGINE_ENDPOINT", "tcp://h:7000")
	t.Setenv("KVSIDECAR_ENGINE_METRICS_URL", "")
	t.Setenv("KVSIDECAR_LORA_ADAPTER_NAMES", "1=a,2=b")
	c, _, done := parse(append([]string{"--data-parallel-size=3"}, identity[1:]...), io.Discard, io.Discard)
	require.False(t, done)
	s := c.sidecar(nil)
	require.Equal(t, "from-env", s.Replica)
	require.Equal(t, []string{"tcp://h:7000", "tcp://h:7001", "tcp://h:7002"}, s.Endpoints)
	require.Empty(t, s.Scrape.URL, "an empty URL turns stats off")
	require.Equal(t, map[int64]string{1: "a", 2: "b"}, s.Mirror.Adapters)
	require.Equal(t, 5*time.Minute, s.Writer.Refresh)
}

// buffer is what a process prints, read while it runs.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func get(url string) (int, string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestARunFromTheFirstEventToSIGTERM(t *testing.T) {
	redis := rig.Standalone(t)
	engine, err := publisher.Listen(t.Context(), publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = engine.Close() })
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "vllm:num_requests_running{model_name=\"m\"} 64\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0.5\n")
	}))
	t.Cleanup(metrics.Close)
	events, replay := engine.Endpoints()

	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	logs := &buffer{}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"--replica-id=r", "--model-id=m", "--tenant-id=t", "--hash-scheme=vllm", "--redis=" + redis.URL(),
			"--engine-endpoint=" + events, "--engine-replay-endpoint=" + replay, "--engine-metrics-url=" + metrics.URL,
			"--engine-cache-size-bytes=1000", "--http-bind-address=127.0.0.1:0", "--stats-interval=100ms"}, io.Discard, logs)
	}()
	var base string
	require.Eventually(t, func() bool {
		if m := regexp.MustCompile(`"http":"([^"]+)"`).FindStringSubmatch(logs.String()); m != nil {
			base = "http://" + m[1]
		}
		status, _ := get(base + "/readyz")
		return status == http.StatusOK
	}, 30*time.Second, 5*time.Millisecond, logs.String())

	payload, err := msgpack.Marshal([]any{1.5, []any{[]any{"BlockStored", []any{1, 2}, nil, []any{1, 2, 3, 4}, 2, nil}}})
	require.NoError(t, err)
	engine.Publish(payload)
	client, err := store.Dial(store.DialOptions{URL: redis.URL()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	index, err := store.New(store.Options{Redis: client})
	require.NoError(t, err)
	scope := ranking.Scope{Tenant: "t", Model: "m"}
	require.Eventually(t, func() bool {
		state, err := index.State(t.Context(), scope)
		return err == nil && state.Prefixes == 2 && len(state.Replicas) == 1 && state.Replicas[0].Stats.MemoryBytes == 500
	}, 30*time.Second, 5*time.Millisecond)

	// The state in Redis comes before the reply that tells the sidecar of it.
	for _, want := range []string{`kvsidecar_blocks_resident{replica="r",tier="T1"} 2`, `kvsidecar_events_total{replica="r",type="BlockStored"} 1`,
		`kvsidecar_scrapes_total{result="ok"}`, `kvsidecar_engine_live{engine="` + events + `"} 1`, `kvsidecar_pending_changes{replica="r"} 0`} {
		require.Eventually(t, func() bool {
			status, page := get(base + "/metrics")
			return status == http.StatusOK && strings.Contains(page, want)
		}, 30*time.Second, 5*time.Millisecond, want)
	}
	status, _ := get(base + "/healthz")
	require.Equal(t, http.StatusOK, status)
	terminate()
	require.Zero(t, <-code, logs.String())
	state, err := index.State(t.Context(), scope)
	require.NoError(t, err)
	require.Zero(t, state.Prefixes)
	require.Empty(t, state.Replicas)
}
