package lookupsvc

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"inferencecache.io/lookuptier/ranking"
)

// namespace starts the name of every metric of a lookup pod.
const namespace = "inferencecache"

// Values of the reason label of lookup_errors_total.
const (
	errIndex = "index" // the index returned an error
	errPanic = "panic" // a panic was caught
	errStuck = "stuck" // too many calls of the index hang
)

// metrics of the service; docs/metrics.md says what to do when one moves.
type metrics struct {
	models *modelSeries // calls and latency of LookupRoute, by model

	lookupRejected map[flaw]prometheus.Counter
	lookupErrors   *prometheus.CounterVec
	inputs         [sources]prometheus.Counter
	degraded       prometheus.Counter
	partial        prometheus.Counter
	blocksAsked    prometheus.Counter
	blocksCached   prometheus.Counter
	blocksWalked   prometheus.Counter
	stageInput     prometheus.Observer
	stageIndex     prometheus.Observer
	stageRanking   prometheus.Observer

	ingestDropped  map[flaw]prometheus.Counter
	ingestErrors   *prometheus.CounterVec
	updates        prometheus.Counter
	blocksIngested prometheus.Counter
	events         *prometheus.CounterVec
	panics         prometheus.Counter
}

func newMetrics(r *registrar, models int, left *atomic.Int64) (*metrics, error) {
	stages := r.histograms("lookup_stage_seconds",
		"Time of a LookupRoute call in one stage of it.",
		[]float64{1e-6, 5e-6, 25e-6, 100e-6, 500e-6, 2.5e-3, 10e-3, 50e-3, 250e-3}, "stage")
	inputs := r.counters("lookup_input_total",
		"LookupRoute calls by what they named the prompt with.", "input")
	blocks := r.counters("lookup_blocks_total",
		"Blocks of lookups: asked for, answered from the pod's memory, read from the index.", "state")
	m := &metrics{
		models: newModelSeries(r, models),
		lookupRejected: byFlaw(r.counters("lookup_rejected_total",
			"LookupRoute calls answered NO_HINT for what they carried.", "reason"), lookupFlaws),
		lookupErrors: r.counters("lookup_errors_total",
			"LookupRoute calls answered NO_HINT because something failed.", "reason"),
		degraded: r.counter("lookup_degraded_total",
			"LookupRoute calls answered from memory because the index could not be asked."),
		partial: r.counter("lookup_partial_total",
			"LookupRoute calls judged on part of the index, because it or a shard of it could not be asked: only matches count."),
		blocksAsked:  blocks.WithLabelValues("asked"),
		blocksCached: blocks.WithLabelValues("cached"),
		blocksWalked: blocks.WithLabelValues("walked"),
		stageInput:   stages.WithLabelValues("input"),
		stageIndex:   stages.WithLabelValues("index"),
		stageRanking: stages.WithLabelValues("ranking"),
		ingestDropped: byFlaw(r.counters("ingest_dropped_total",
			"Updates, entries and events that were acknowledged and not indexed.", "reason"), ingestFlaws),
		ingestErrors: r.counters("ingest_errors_total",
			"Calls that ended in UNAVAILABLE because the index did not take what they carried, or could not be read.", "rpc"),
		updates:        r.counter("ingest_updates_total", "CacheStateUpdates that the index took."),
		blocksIngested: r.counter("ingest_blocks_total", "Holds that the index took, after chains were flattened."),
		events:         r.counters("ingest_events_total", "CacheEvents that the index took, by type.", "type"),
		panics:         r.counter("panics_total", "Panics that were caught; each is a fault of this program."),
	}
	for i := range m.inputs {
		m.inputs[i] = inputs.WithLabelValues(sourceNames[i])
	}
	for _, reason := range []string{errIndex, errPanic, errStuck} {
		m.lookupErrors.WithLabelValues(reason)
	}
	for _, rpc := range []string{rpcReport, rpcPublish, rpcState} {
		m.ingestErrors.WithLabelValues(rpc)
	}
	r.gauge("lookup_abandoned_calls",
		"Calls of the index that ran out of their lookup's budget and still run.",
		func() float64 { return float64(left.Load()) })
	return m, r.err
}

// evidence counts where the blocks of a lookup came from.
func (m *metrics) evidence(ev *ranking.Evidence) {
	if ev.Degraded {
		m.degraded.Inc()
	}
	if ev.Partial {
		m.partial.Inc()
	}
	addBlocks(m.blocksAsked, ev.Asked)
	addBlocks(m.blocksCached, ev.Cached)
	addBlocks(m.blocksWalked, ev.Walked)
}

func addBlocks(c prometheus.Counter, n int) {
	if n > 0 {
		c.Add(float64(n))
	}
}

// byFlaw makes every series from the start and spares the hot path their search.
func byFlaw(v *prometheus.CounterVec, flaws []flaw) map[flaw]prometheus.Counter {
	m := make(map[flaw]prometheus.Counter, len(flaws))
	for _, f := range flaws {
		m[f] = v.WithLabelValues(string(f))
	}
	return m
}
