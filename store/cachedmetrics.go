package store

import (
	"github.com/prometheus/client_golang/prometheus"
)

// cachedCounts are the metrics of a Cached; docs/metrics.md explains them.
type cachedCounts struct {
	reads, shared, failed, nothing, degraded, lost, applied prometheus.Counter
	dropped                                                 *prometheus.CounterVec
	lag, readTime                                           prometheus.Histogram
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (n *cachedCounts) init() {
	n.reads = counter("inferencecache_cache_reads_total", "Reads of Redis by lookups that memory could not answer, shared ones included.")
	n.shared = counter("inferencecache_cache_reads_shared_total", "Those of them that were answered by one read together.")
	n.failed = counter("inferencecache_redis_read_errors_total", "Reads of the index that Redis did not answer.")
	n.nothing = counter("inferencecache_cache_unanswered_total", "Lookups that neither memory nor Redis could answer.")
	n.degraded = counter("inferencecache_cache_degraded_total", "Lookups answered from memory while Redis was away.")
	n.lost = counter("inferencecache_redis_log_errors_total", "Failed reads of the change log.")
	n.applied = counter("inferencecache_log_entries_total", "Entries of change logs that were applied.")
	n.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "inferencecache_cache_dropped_total", Help: "Partitions whose memory was dropped, by reason.",
	}, []string{"reason"})
	for _, why := range []string{dropIdle, dropRoom, dropGap, dropLost, dropMoved, dropGarbage, dropAway, dropClosed} {
		n.dropped.WithLabelValues(why)
	}
	n.lag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "inferencecache_log_lag_seconds", Help: "Age of a change when it was applied, by Redis' clock, in whole milliseconds.",
		Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 5},
	})
	n.readTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "inferencecache_redis_read_seconds", Help: "Time of one read of the index.",
		Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
	})
}

func (n *cachedCounts) all() []prometheus.Collector {
	return []prometheus.Collector{n.reads, n.shared, n.failed, n.nothing, n.degraded, n.lost, n.applied, n.dropped, n.lag, n.readTime}
}

var (
	descBytes   = prometheus.NewDesc("inferencecache_cache_bytes", "Memory of the blocks that are remembered, by the cache's own account.", nil, nil)
	descMax     = prometheus.NewDesc("inferencecache_cache_max_bytes", "Bound of that memory.", nil, nil)
	descBlocks  = prometheus.NewDesc("inferencecache_cache_blocks", "Blocks that are remembered, absent ones included.", nil, nil)
	descParts   = prometheus.NewDesc("inferencecache_cache_partitions", "Partitions that are remembered: live ones answer from memory.", []string{"state"}, nil)
	descSilence = prometheus.NewDesc("inferencecache_log_silence_seconds", "Longest time since a followed log was heard of; 0 with none.", nil, nil)
	descLookups = prometheus.NewDesc("inferencecache_cache_lookups_total", "Looks into memory, by result.", []string{"result"}, nil)
	descRetries = prometheus.NewDesc("inferencecache_cache_retries_total", "Looks that met a change and were made again.", nil, nil)
	descEvicted = prometheus.NewDesc("inferencecache_cache_evictions_total", "Runs of blocks dropped for room.", nil, nil)
	descRefused = prometheus.NewDesc("inferencecache_cache_refused_total", "Reads that were not remembered: too late, or no room.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Cached) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.count.all() {
		m.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{descBytes, descMax, descBlocks, descParts, descSilence, descLookups, descRetries, descEvicted, descRefused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Cached) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.count.all() {
		m.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	s := c.memory.Stats()
	gauge(descBytes, float64(s.Bytes))
	gauge(descMax, float64(s.MaxBytes))
	gauge(descBlocks, float64(s.Blocks))
	count(descLookups, s.Hits, "hit")
	count(descLookups, s.Misses, "miss")
	count(descRetries, s.Retries)
	count(descEvicted, s.Evicted)
	count(descRefused, s.Refused)
	now := c.elapsed()
	live, waiting, silent := 0, 0, int64(0)
	for _, f := range *c.followed.Load() {
		if f.live(now) {
			live++
		} else {
			waiting++
		}
		if heard := f.heard.Load(); heard != 0 {
			silent = max(silent, now-heard)
		}
	}
	gauge(descParts, float64(live), "live")
	gauge(descParts, float64(waiting), "waiting")
	gauge(descSilence, float64(silent)/1000)
}
