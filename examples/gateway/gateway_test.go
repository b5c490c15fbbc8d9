package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"inferencecache.io/lookuptier/client"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/store/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 30 * time.Second

// startPod serves the tier on an embedded store.
func startPod(t *testing.T) (addr string, stop func()) {
	t.Helper()
	redis, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	conn, err := store.Dial(store.DialOptions{URL: redis.URL(), ClientName: "gateway-test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	index, err := store.New(store.Options{Redis: conn, Shards: 1})
	require.NoError(t, err)
	require.NoError(t, index.Ready(context.Background()))
	s, err := lookupsvc.New(lookupsvc.Options{Index: index, Knobs: ranking.DefaultKnobs(), LookupTimeout: limit})
	require.NoError(t, err)
	g := grpc.NewServer(lookupsvc.ServerOptions()...)
	lookupsvc.Register(g, s)
	l := listenTCP(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l)
	}()
	stop = func() {
		g.Stop()
		<-served
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// startGateway is a gateway with fake engines, on a client that is patient with a busy machine.
func startGateway(t *testing.T, lookup string, fakes int) (url string, tier *client.Client) {
	t.Helper()
	tier, err := client.Dial(lookup, client.Options{Timeout: limit})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tier.Close()) })
	ctx, stop := context.WithCancel(context.Background())
	var all engines
	for i := range fakes {
		e, err := startFakeEngine(ctx, tier, fmt.Sprint("engine-", i), "default", "vllm")
		require.NoError(t, err)
		t.Cleanup(func() { e.close(context.Background()) })
		all = append(all, engine{e.replica, e.url})
	}
	g, err := newGateway(tier, "default", "vllm", all)
	require.NoError(t, err)
	l := listenTCP(t)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l, g) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
	return "http://" + l.Addr().String(), tier
}

type answer struct {
	reason, replica string
	status, cached  int
}

func complete(t *testing.T, url string, prompt any) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "llama-3", "prompt": prompt})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var out struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	_ = json.Unmarshal(raw, &out)
	return answer{resp.Header.Get(reasonHeader), resp.Header.Get(replicaHeader), resp.StatusCode, out.Usage.Details.Cached}
}

func tokens(from, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = from + i
	}
	return ids
}

func TestAConversationStaysWithTheEngineThatKnowsIt(t *testing.T) {
	addr, _ := startPod(t)
	url, tier := startGateway(t, addr, 3)
	prompt := tokens(1, 160)
	first := complete(t, url, prompt)
	require.Equal(t, answer{"NO_HINT", first.replica, http.StatusOK, 0}, first, "nothing is known yet")
	rig.Eventually(t, limit, "the engine's report in the index", func() error {
		state, err := tier.State(context.Background(), "default", "llama-3")
		if n := state.GetSummary().GetTotalPrefixes(); n != 10 {
			return fmt.Errorf("%d blocks, %w", n, err)
		}
		return nil
	})
	prompt = append(prompt, tokens(900, 64)...)
	require.Equal(t, answer{"PREFIX_MATCH", first.replica, http.StatusOK, 160}, complete(t, url, prompt))
	for range 5 {
		require.Equal(t, answer{"PREFIX_MATCH", first.replica, http.StatusOK, 224}, complete(t, url, prompt))
	}
}

func TestWithoutTheTierEnginesTakeTurns(t *testing.T) {
	addr, stop := startPod(t)
	url, _ := startGateway(t, addr, 3)
	stop()
	seen := map[string]int{}
	for range 6 {
		a := complete(t, url, tokens(1, 160))
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "NO_HINT", a.reason)
		seen[a.replica]++
	}
	require.Equal(t, map[string]int{"engine-0": 2, "engine-1": 2, "engine-2": 2}, seen)
}

func TestWhatIsNotACompletionIsRefused(t *testing.T) {
	addr, _ := startPod(t)
	url, _ := startGateway(t, addr, 1)
	require.Equal(t, http.StatusBadRequest, complete(t, url, map[string]int{"a": 1}).status, "the engine refuses")
	text := complete(t, url, "some text")
	require.Equal(t, "NO_HINT", text.reason)
	require.Equal(t, "engine-0", text.replica)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(post(t, url, "{"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func post(t *testing.T, url, body string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	return req
}

func TestTheCommandLine(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	addr, _ := startPod(t)
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"-listen", "127.0.0.1:0", "-lookup", addr, "-demo", "2"}, in)
		in.Close()
	}()
	var replica, url string
	for range 2 {
		_, err := fmt.Fscanf(out, "fake engine %s on %s\n", &replica, &url)
		require.NoError(t, err)
	}
	_, err := fmt.Fscanf(out, "gateway on %s\n", &url)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, complete(t, url, tokens(1, 32)).status)
	stop()
	require.NoError(t, <-done)

	require.ErrorContains(t, run(context.Background(), []string{"-listen", "127.0.0.1:0"}, io.Discard), "-demo 3")
	require.Error(t, run(context.Background(), []string{"-engine", "engine-0"}, io.Discard))
}
