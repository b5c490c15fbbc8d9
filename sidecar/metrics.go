package sidecar

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/sidecar/writer"
)

// Collector exports the kvsidecar_* metrics of a Sidecar; docs/sidecar.md explains them.
type Collector struct{ side *Sidecar }

// NewCollector is to be registered once.
func NewCollector(s *Sidecar) Collector { return Collector{side: s} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kvsidecar_"+name, help, labels, nil)
}

// series is a metric that is one number of something.
type series[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(T) float64
}

func counterOf[T any](name, help, label string, read func(T) int64) series[T] {
	return series[T]{desc(name, help, label), prometheus.CounterValue, func(v T) float64 { return float64(read(v)) }}
}

func gaugeOf[T any](name, help, label string, read func(T) float64) series[T] {
	return series[T]{desc(name, help, label), prometheus.GaugeValue, read}
}

var followSeries = []series[*follow.Counts]{
	counterOf("batches_total", "Event batches applied.", "engine", func(c *follow.Counts) int64 { return c.Batches.Load() }),
	counterOf("received_bytes_total", "Bytes of event batches decoded.", "engine", func(c *follow.Counts) int64 { return c.Bytes.Load() }),
	counterOf("unknown_events_total", "Events with a tag that this version does not know, skipped.", "engine", func(c *follow.Counts) int64 { return c.UnknownEvents.Load() }),
	counterOf("unknown_fields_total", "Fields that this version does not know, skipped.", "engine", func(c *follow.Counts) int64 { return c.UnknownFields.Load() }),
	counterOf("gaps_total", "Gaps in the sequence of batches.", "engine", func(c *follow.Counts) int64 { return c.Gaps.Load() }),
	counterOf("missed_batches_total", "Batches missing in gaps, before any replay.", "engine", func(c *follow.Counts) int64 { return c.MissedBatches.Load() }),
	counterOf("lost_batches_total", "Batches that no replay could bring.", "engine", func(c *follow.Counts) int64 { return c.LostBatches.Load() }),
	counterOf("losses_total", "Times that everything mirrored became doubtful because batches were lost.", "engine", func(c *follow.Counts) int64 { return c.Losses.Load() }),
	counterOf("replays_total", "Replays asked for.", "engine", func(c *follow.Counts) int64 { return c.Replays.Load() }),
	counterOf("replay_failures_total", "Replays that did not come to their end.", "engine", func(c *follow.Counts) int64 { return c.ReplayFailures.Load() }),
	counterOf("replayed_batches_total", "Batches that came by replay.", "engine", func(c *follow.Counts) int64 { return c.ReplayedBatches.Load() }),
	counterOf("duplicate_batches_total", "Batches that came live after a replay had brought them.", "engine", func(c *follow.Counts) int64 { return c.Duplicates.Load() }),
	counterOf("engine_restarts_total", "Restarts of the engine noticed.", "engine", func(c *follow.Counts) int64 { return c.Restarts.Load() }),
	counterOf("connects_total", "Connections to the engine made.", "engine", func(c *follow.Counts) int64 { return c.Connects.Load() }),
	gaugeOf("event_lag_seconds", "How far the newest live batch's time stamp lay behind this machine's clock.", "engine", func(c *follow.Counts) float64 { return float64(c.Lag.Load()) / 1e9 }),
	gaugeOf("engine_live", "1 while what was applied is what the engine holds.", "engine", func(c *follow.Counts) float64 { return float64(c.Live.Load()) }),
}

var mirrorSeries = []series[*mirror.State]{
	counterOf("removed_unknown_blocks_total", "Removals of blocks, or of a block from a medium, that were never seen.", "replica", func(s *mirror.State) int64 { return s.Counts.RemovedUnknown }),
	gaugeOf("blocks_mirrored", "Engine blocks kept in mind.", "replica", func(s *mirror.State) float64 { return float64(s.Blocks) }),
	gaugeOf("blocks_doubtful", "Engine blocks of which lost events may have told the end.", "replica", func(s *mirror.State) float64 { return float64(s.Doubtful) }),
	gaugeOf("pending_changes", "Changes that Redis was not told yet.", "replica", func(s *mirror.State) float64 { return float64(s.Pending) }),
}

var writerSeries = []series[*writer.Counts]{
	counterOf("redis_writes_total", "Batches that Redis took.", "replica", func(c *writer.Counts) int64 { return c.Writes.Load() }),
	counterOf("redis_errors_total", "Batches that Redis did not take.", "replica", func(c *writer.Counts) int64 { return c.Errors.Load() }),
	counterOf("redis_lost_total", "Times that Redis had lost what it was told, and was told everything again.", "replica", func(c *writer.Counts) int64 { return c.Lost.Load() }),
	counterOf("redis_foreign_writes_total", "Writes for this replica that somebody else made.", "replica", func(c *writer.Counts) int64 { return c.Foreign.Load() }),
	counterOf("holds_stored_total", "Holds written.", "replica", func(c *writer.Counts) int64 { return c.Stored.Load() }),
	counterOf("holds_removed_total", "Holds removed one by one.", "replica", func(c *writer.Counts) int64 { return c.Removed.Load() }),
	counterOf("holds_refreshed_total", "Holds written again because they stayed.", "replica", func(c *writer.Counts) int64 { return c.Refreshed.Load() }),
	counterOf("retirements_total", "Times that the replica's number was retired.", "replica", func(c *writer.Counts) int64 { return c.Retired.Load() }),
	counterOf("lease_renewals_total", "Renewals of the replica's lease.", "replica", func(c *writer.Counts) int64 { return c.Leases.Load() }),
	gaugeOf("redis_away", "1 while Redis does not take writes.", "replica", func(c *writer.Counts) float64 { return float64(c.Away.Load()) }),
}

var (
	eventsDesc    = desc("events_total", "Events applied, by type.", "replica", "type")
	blocksDesc    = desc("event_blocks_total", "Blocks named in events, by type.", "replica", "type")
	residentDesc  = desc("blocks_resident", "Fingerprints that the index should have, by tier.", "replica", "tier")
	keptOutDesc   = desc("blocks_kept_out", "Blocks that the engine has and the index must not, by reason.", "replica", "reason")
	droppedDesc   = desc("blocks_dropped_total", "Blocks in events that were kept out of the index, by reason.", "replica", "reason")
	malformedDesc = desc("malformed_batches_total", "Batches dropped whole, by reason.", "engine", "reason")
	scrapesDesc   = desc("scrapes_total", "Scrapes of the engine's metrics, by result.", "result")
)

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range followSeries {
		ch <- s.desc
	}
	for _, s := range mirrorSeries {
		ch <- s.desc
	}
	for _, s := range writerSeries {
		ch <- s.desc
	}
	for _, d := range []*prometheus.Desc{eventsDesc, blocksDesc, residentDesc, keptOutDesc, droppedDesc, malformedDesc, scrapesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, f := range c.side.feeds {
		counts, engine := f.follow.Counts(), f.follow.Endpoint()
		emit(ch, followSeries, counts, engine)
		count(malformedDesc, counts.Malformed.Load(), engine, "malformed")
		count(malformedDesc, counts.TooLarge.Load(), engine, "too_large")
	}
	for _, r := range c.side.all() {
		state, replica := r.mirror.State(), r.writer.Replica()
		emit(ch, mirrorSeries, &state, replica)
		emit(ch, writerSeries, r.writer.Counts(), replica)
		count(eventsDesc, state.Counts.Stored, replica, "BlockStored")
		count(eventsDesc, state.Counts.Removed, replica, "BlockRemoved")
		count(eventsDesc, state.Counts.Cleared, replica, "AllBlocksCleared")
		count(blocksDesc, state.Counts.StoredBlocks, replica, "BlockStored")
		count(blocksDesc, state.Counts.RemovedBlocks, replica, "BlockRemoved")
		for tier := 1; tier < len(state.Resident); tier++ {
			gauge(residentDesc, state.Resident[tier], replica, "T"+strconv.Itoa(tier))
		}
		for _, reason := range mirror.Reasons() {
			count(droppedDesc, state.Counts.KeptOut[reason], replica, reason.String())
			gauge(keptOutDesc, state.KeptOut[reason], replica, reason.String())
		}
	}
	if c.side.scraper != nil {
		for result, name := range map[int]string{scrapeOK: "ok", scrapeMissing: "missing", scrapeError: "error"} {
			count(scrapesDesc, c.side.scrapes[result].Load(), name)
		}
	}
}

func emit[T any](ch chan<- prometheus.Metric, list []series[T], v T, label string) {
	for _, s := range list {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.read(v), label)
	}
}
