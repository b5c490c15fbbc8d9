package main

import (
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"inferencecache.io/lookuptier/store"
)

const namespace = "inferencecache"

// podMetrics are those of the process itself.
type podMetrics struct {
	up         prometheus.Gauge
	redisUp    prometheus.Gauge
	foreign    prometheus.Gauge
	probe      prometheus.Histogram
	tls        prometheus.Gauge
	loaded     prometheus.Gauge
	lastReload prometheus.Gauge
	reloads    prometheus.Counter
	badReloads prometheus.Counter
}

func newPodMetrics(reg prometheus.Registerer, ready *readiness) *podMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	}
	m := &podMetrics{
		up:      gauge("server_up", "1 while the gRPC server takes calls."),
		redisUp: gauge("redis_up", "1 if Redis answered the last probe with the layout that this pod needs."),
		foreign: gauge("layout_mismatch", "1 while Redis holds another layout version or number of shards than this pod was started with."),
		probe: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "redis_probe_seconds",
			Help:    "Time that Redis took to answer a probe.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}}),
		tls:        gauge("server_grpc_tls_enabled", "1 if the gRPC port speaks TLS."),
		loaded:     gauge("policies_loaded", "Tenants with a policy of their own in force."),
		lastReload: gauge("policy_reload_last_success_timestamp_seconds", "When the policies in force were loaded, Unix seconds; 0 without --policy-dir."),
		reloads:    counter("policy_reloads_total", "Changed policies that were put in force."),
		badReloads: counter("policy_reload_failures_total", "Changed policies that were wrong and not put in force."),
	}
	isReady := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "ready",
		Help: "1 while /readyz says so."}, func() float64 {
		if ready.whyNot() != nil {
			return 0
		}
		return 1
	})
	build := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info",
		Help:        "1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision(), "goversion": runtime.Version()}})
	build.Set(1)
	reg.MustRegister(m.up, m.redisUp, m.foreign, m.probe, m.loaded, m.lastReload, m.reloads, m.badReloads, m.tls, isReady, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return m
}

func (m *podMetrics) probed(err error, took time.Duration) {
	if errors.Is(err, store.ErrLayout) {
		m.foreign.Set(1)
	} else if err == nil {
		m.foreign.Set(0)
	}
	if err != nil {
		m.redisUp.Set(0)
		return
	}
	m.redisUp.Set(1)
	m.probe.Observe(took.Seconds())
}
