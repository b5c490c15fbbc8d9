package main

import (
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// mostNames bounds the distinct tenants and models in labels; the rest is "other".
const (
	mostNames = 1000
	otherName = "other"
)

// indexMetrics hears what the store went on without and what sweeps did.
type indexMetrics struct {
	policy func(tenant string) *ranking.Policy
	log    *slog.Logger
	limit  *rate.Limiter // of log lines about garbage and shards

	garbage   *prometheus.CounterVec
	shards    *prometheus.CounterVec
	evictions *prometheus.CounterVec
	byTenant  *prometheus.CounterVec
	entries   entryCounts
	passes    prometheus.Histogram
	behind    prometheus.Gauge

	mu      sync.Mutex
	tenants map[string]bool // with a label of their own
}

var (
	_ store.Observer      = (*indexMetrics)(nil)
	_ store.SweepObserver = (*indexMetrics)(nil)
)

func newIndexMetrics(reg prometheus.Registerer, shards int, policy func(string) *ranking.Policy, log *slog.Logger) *indexMetrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	m := &indexMetrics{
		policy: policy, log: log, limit: rate.NewLimiter(1, 5), tenants: make(map[string]bool),
		garbage: counters("index_garbage_total", "Things in Redis that could not be read and were left out, by kind.", "kind"),
		shards:  counters("index_shard_failures_total", "Lookups that went on without one shard, by shard.", "shard"),
		evictions: counters("index_evictions_total",
			"Holds that the index dropped by itself, by the eviction of the tenant's policy and by reason.", "algorithm", "reason"),
		byTenant: counters("tenant_evictions_total", "The same by tenant.", "tenant_id", "reason"),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "sweep_pass_seconds",
			Help:    "Time that this pod took to sweep one partition, pauses included.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60, 300}}),
		behind: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "sweep_partitions_behind",
			Help: "Partitions without a full sweep for two intervals."}),
	}
	reg.MustRegister(m.garbage, m.shards, m.evictions, m.byTenant, &m.entries, m.passes, m.behind)
	for _, kind := range []string{"hold", "replica", "count", "space", "head", "log", "catalog", "key"} {
		m.garbage.WithLabelValues(kind)
	}
	for shard := range shards {
		m.shards.WithLabelValues(strconv.Itoa(shard))
	}
	for _, algorithm := range []ranking.Eviction{ranking.EvictionLRU, ranking.EvictionLFU} {
		for _, reason := range []string{store.EvictedExpired, store.EvictedRetired} {
			m.evictions.WithLabelValues(string(algorithm), reason)
		}
	}
	return m
}

// Garbage counts what could not be read.
func (m *indexMetrics) Garbage(what string, err error) {
	m.garbage.WithLabelValues(what).Inc()
	if m.limit.Allow() {
		m.log.Error("garbage in Redis was left out; lookupctl doctor looks closer", "kind", what, "error", err)
	}
}

// ShardFailed counts lookups without a shard.
func (m *indexMetrics) ShardFailed(shard int, err error) {
	m.shards.WithLabelValues(strconv.Itoa(shard)).Inc()
	if m.limit.Allow() {
		m.log.Warn("a lookup went on without a shard", "shard", shard, "error", err)
	}
}

// Evicted counts dropped holds.
func (m *indexMetrics) Evicted(tenant, reason string, n int64) {
	m.evictions.WithLabelValues(string(m.policy(tenant).Eviction), reason).Add(float64(n))
	m.byTenant.WithLabelValues(m.tenantLabel(tenant), reason).Add(float64(n))
}

func (m *indexMetrics) tenantLabel(tenant string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tenants[tenant] {
		if len(m.tenants) >= mostNames {
			return otherName
		}
		m.tenants[tenant] = true
	}
	return label(tenant)
}

// Swept times one pass.
func (m *indexMetrics) Swept(d time.Duration) { m.passes.Observe(d.Seconds()) }

// Behind tells how far sweeps lag.
func (m *indexMetrics) Behind(partitions int) { m.behind.Set(float64(partitions)) }

// Entries replaces the counts of all models.
func (m *indexMetrics) Entries(byModel map[string]int64) { m.entries.set(byModel) }

// label makes a name from Redis fit for Prometheus, which takes UTF-8 only.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
