package lookupsvc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

func TestModelsBeyondTheLimitShareOneLabel(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Models = 3 })
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			req := chain("a")
			req.ModelId = fmt.Sprint("model-", i)
			r.ask(req)
		})
	}
	wg.Wait()
	calls := func(model string) int {
		return r.value("inferencecache_lookup_route_calls_total", prometheus.Labels{"model": model})
	}
	require.Equal(t, 47, calls("other"))
	require.Equal(t, 50, r.value("inferencecache_lookup_route_calls_total", nil))
	require.Equal(t, 47, r.value("inferencecache_lookup_route_latency_seconds", prometheus.Labels{"model": "other"}))
	seen := 0
	for i := range 50 {
		seen += calls(fmt.Sprint("model-", i))
	}
	require.Equal(t, 3, seen)
}

func TestNamesThatAreNoLabelsDoNotBreakTheMetrics(t *testing.T) {
	r := newRig(t)
	for _, model := range []string{"\xff\xfe", strings.Repeat("n", 513), strings.Repeat("n", 512), "a\"b\nc", ""} {
		r.metrics.lookupDone(model, ranking.ReasonNoHint, false, time.Millisecond, "")
		r.metrics.lookupDone(model, "A_NEW_CODE", true, time.Millisecond, "")
	}
	require.Equal(t, 10, r.value("inferencecache_lookup_route_calls_total", nil))
	require.Equal(t, 2, r.value("inferencecache_lookup_route_calls_total", prometheus.Labels{"model": "other"}))
}

func TestLatencyBucketsAreTheContracts(t *testing.T) {
	r := newRig(t)
	r.metrics.lookupDone("m", ranking.ReasonNoHint, false, time.Millisecond, "")
	families, err := r.registry.Gather()
	require.NoError(t, err)
	var bounds []float64
	for _, f := range families {
		if f.GetName() == "inferencecache_lookup_route_latency_seconds" {
			for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
				bounds = append(bounds, b.GetUpperBound())
			}
		}
	}
	require.Equal(t, []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1}, bounds)
}

func TestMetricsPassTheLinterOfTheirFormat(t *testing.T) {
	r := newRig(t)
	r.ask(chain("a"))
	families, err := r.registry.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestTwoServicesOnOneRegistryAreRefused(t *testing.T) {
	r := newRig(t)
	_, err := New(Options{Index: r.model, Metrics: r.registry})
	require.ErrorContains(t, err, "registering metrics")
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	model := rankingtest.New(func() int64 { return 1 })
	for _, o := range []Options{
		{}, {Index: model, BlockSize: -1}, {Index: model, BlockSize: MaxTokenIDs + 1}, {Index: model, LookupTimeout: -1},
	} {
		_, err := New(o)
		require.Error(t, err)
	}
	s, err := New(Options{Index: model})
	require.NoError(t, err)
	require.Equal(t, 16, s.blockSize)
	require.Equal(t, 100*time.Millisecond, s.timeout)
}

func TestTheLogIsSampledAndSaysWhatItLeftOut(t *testing.T) {
	r := newRig(t)
	r.sampler.every = time.Hour
	for range 100 {
		r.sampler.warn("trouble", "n", 1)
	}
	r.sampler.warn("another trouble")
	require.Equal(t, 5, strings.Count(r.log.String(), "msg=trouble"))
	require.Equal(t, 1, strings.Count(r.log.String(), `msg="another trouble"`))
	r.sampler.kinds["trouble"].limit.SetBurst(1_000_000)
	r.sampler.kinds["trouble"].limit.SetLimit(1_000_000)
	require.Eventually(t, func() bool {
		r.sampler.warn("trouble")
		return strings.Contains(r.log.String(), "omitted=")
	}, 10*time.Second, time.Millisecond)
}
