package scrape

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/ranking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	textType = "text/plain; version=0.0.4"
	openType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// serve returns a scraper of an engine that answers with what body points to.
func serve(t *testing.T, o Options, contentType string, body *string) *Scraper {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if *body == "500" {
			http.Error(w, "loading", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(*body))
	}))
	t.Cleanup(srv.Close)
	o.URL = srv.URL + "/metrics"
	s, err := New(o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

const vllm = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 32.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 32.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
# TYPE vllm:external_prefix_cache_hits_total counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 70.0
# TYPE vllm:external_prefix_cache_queries_total counter
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} 90.0
# TYPE vllm:other histogram
vllm:other_bucket{le="+Inf"} 3
vllm:other_sum 1
vllm:other_count 3
`

func TestEnginesOldAndNew(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, body string
		want       ranking.Stats
	}{
		"vLLM": {textType, vllm, ranking.Stats{MemoryBytes: 250, HitRate: 0.4, Pressure: 0.5, ClientVersion: "v", T2HitTokens: 70, T2QueryTokens: 90}},
		"vLLM before 0.21": {textType, "vllm:num_requests_running{model_name=\"m\"} 1\nvllm:gpu_cache_usage_perc{model_name=\"m\"} 0.75\n" +
			"vllm:gpu_prefix_cache_hits_total{model_name=\"m\"} 1\nvllm:gpu_prefix_cache_queries_total{model_name=\"m\"} 4\n",
			ranking.Stats{MemoryBytes: 750, HitRate: 0.25, Pressure: 0.75, ClientVersion: "v"}},
		"vLLM on a CPU": {textType, "vllm:cpu_cache_usage_perc{model_name=\"m\"} 0.5\n", ranking.Stats{MemoryBytes: 500, Pressure: 0.5, ClientVersion: "v"}},
		"SGLang": {textType, "sglang:num_running_reqs{model_name=\"m\"} 64\nsglang:num_queue_reqs{model_name=\"m\"} 100\n" +
			"sglang:token_usage{model_name=\"m\"} 0.1\nsglang:cache_hit_rate{model_name=\"m\"} 0.6\n",
			ranking.Stats{MemoryBytes: 100, HitRate: 0.6, Pressure: 1, ClientVersion: "v"}},
		"OpenMetrics": {openType, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 64.0 1700000000.1\n" +
			"# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total{model_name=\"m\"} 3.0 1700000000.1 # {trace_id=\"a}b\"} 1.0\n" +
			"vllm:prefix_cache_hits_created{model_name=\"m\"} 1.7e9\nvllm:prefix_cache_queries_total{model_name=\"m\"} 4.0\n# EOF\n",
			ranking.Stats{HitRate: 0.75, Pressure: 0.5, ClientVersion: "v"}},
	} {
		s := serve(t, Options{CacheBytes: 1000, Ceiling: 128, Version: "v"}, tc.kind, &tc.body)
		got, err := s.Scrape(t.Context())
		require.NoError(t, err, name)
		require.Equal(t, map[int]*ranking.Stats{0: &tc.want}, got, name)
	}
}

func TestTheHitRateIsThatOfTheLastWindow(t *testing.T) {
	body := ""
	s := serve(t, Options{}, textType, &body)
	at := func(hits, queries string) string {
		body = "vllm:num_requests_running 1\nvllm:prefix_cache_hits_total " + hits + "\nvllm:prefix_cache_queries_total " + queries + "\n"
		got, err := s.Scrape(t.Context())
		require.NoError(t, err)
		return fmt.Sprint(got[0].HitRate)
	}
	require.Equal(t, "0.5", at("500", "1000"), "at first, all there is")
	require.Equal(t, "0.25", at("525", "1100"))
	require.Equal(t, "0.25", at("525", "1100"), "no queries tell nothing new")
	require.Equal(t, "0.1", at("1", "10"), "counters that fell mean a restart")
	require.Equal(t, "0", at("0", "0"), "and an empty cache")
}

func TestNothingFoundIsNoZeros(t *testing.T) {
	for name, tc := range map[string]struct {
		body, says string
		o          Options
	}{
		"an error":          {body: "500", says: "status 500"},
		"an empty page":     {body: "", says: "no known engine metrics"},
		"other metrics":     {body: "go_goroutines 7\n", says: "neither vLLM's nor SGLang's"},
		"another model":     {body: vllm, says: `for model "x"`, o: Options{Model: "x"}},
		"several models":    {body: vllm + "vllm:num_requests_running{model_name=\"n\"} 1\n", says: "--engine-model-name"},
		"counters alone":    {body: "vllm:prefix_cache_hits_total 1\n", says: "neither load nor cache use"},
		"not a number":      {body: "vllm:num_requests_running NaN\n", says: "no known engine metrics"},
		"no metrics at all": {body: "<html>", says: "scrape"},
	} {
		s := serve(t, tc.o, textType, &tc.body)
		got, err := s.Scrape(t.Context())
		require.ErrorContains(t, err, tc.says, name)
		require.Nil(t, got, name)
	}
}

func TestOneOfSeveralModelsAndRanks(t *testing.T) {
	body := `vllm:num_requests_running{engine="0",model_name="a"} 64
vllm:num_requests_running{engine="1",model_name="a"} 128
vllm:num_requests_running{engine="0",model_name="b"} 256
`
	for _, o := range []Options{{Model: "a"}, {Served: "a"}} {
		s := serve(t, o, textType, &body)
		got, err := s.Scrape(t.Context())
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.InDelta(t, 0.25, got[0].Pressure, 1e-6)
		require.InDelta(t, 0.5, got[1].Pressure, 1e-6)
	}
}

func TestTheWeightsOfPressure(t *testing.T) {
	body := "vllm:num_requests_running 64\nvllm:num_requests_waiting 64\nvllm:kv_cache_usage_perc 0.8\n"
	for want, o := range map[float32]Options{
		0.8: {}, 0.5: {CacheWeight: -1}, 0.25: {CacheWeight: -1, WaitingWeight: -1}, 0.75: {CacheWeight: -1, WaitingWeight: 2}, 0.4: {CacheWeight: 0.5, WaitingWeight: -1},
	} {
		s := serve(t, o, textType, &body)
		got, err := s.Scrape(t.Context())
		require.NoError(t, err)
		require.InDelta(t, want, got[0].Pressure, 1e-6, "%+v", o)
	}
}

func TestURLsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, u := range []string{"", "localhost:8000", "ftp://x/metrics", "http://"} {
		_, err := New(Options{URL: u})
		require.ErrorContains(t, err, "want http://", u)
	}
}
