package main

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/policies"
)

// series is how many series a family has, and the sum of their values.
func series(t *testing.T, reg *prometheus.Registry, name string) (n int, sum float64) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return len(f.GetMetric()), sum
		}
	}
	return 0, 0
}

func TestNamesInLabelsAreBounded(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newIndexMetrics(reg, 2, (*policies.Set)(nil).For, slog.New(slog.DiscardHandler))
	counts := map[string]int64{"\xff": 1}
	for i := range 1500 {
		m.Evicted(fmt.Sprint("tenant-", i), "expired", 2)
		counts[fmt.Sprint("model-", i)] = 3
	}
	m.Evicted("tenant-0", "expired", 2)
	n, sum := series(t, reg, "inferencecache_tenant_evictions_total")
	require.Equal(t, 1001, n)
	require.InDelta(t, 3002, sum, 0)
	m.Entries(counts)
	n, sum = series(t, reg, "inferencecache_index_entries")
	require.Equal(t, 1001, n)
	require.InDelta(t, 4501, sum, 0)
	m.Entries(map[string]int64{"left": 7})
	n, sum = series(t, reg, "inferencecache_index_entries")
	require.Equal(t, 1, n)
	require.InDelta(t, 7, sum, 0)
}

func TestPodMetricsPassTheLinterOfTheirFormat(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	newPodMetrics(reg, newReadiness())
	m := newIndexMetrics(reg, 2, (*policies.Set)(nil).For, slog.New(slog.DiscardHandler))
	m.Garbage("hold", errors.New("x"))
	m.ShardFailed(3, errors.New("x"))
	m.Evicted("t", "expired", 1)
	m.Swept(time.Second)
	m.Behind(1)
	m.Entries(map[string]int64{"m": 1})
	families, err := reg.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		require.NotContains(t, p.Metric, "inferencecache_", p.Text)
	}
}

func TestFixedLabelsExistFromTheStart(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	newIndexMetrics(reg, 3, (*policies.Set)(nil).For, slog.New(slog.DiscardHandler))
	n, sum := series(t, reg, "inferencecache_index_shard_failures_total")
	require.Equal(t, 3, n)
	require.Zero(t, sum)
	n, _ = series(t, reg, "inferencecache_index_garbage_total")
	require.Equal(t, 8, n)
}
