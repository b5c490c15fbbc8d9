package doctor

import (
	"fmt"
	"math"
	"strings"
)

// Limits of what is called healthy.
const (
	eventLagWarn = 5.0 // seconds
	pendingWarn  = 100_000
)

func checkSidecars(f *Facts, out *findings) {
	versions := map[string][]string{}
	for i := range f.Sidecars {
		s := &f.Sidecars[i]
		const check = "sidecars.ready"
		if s.Err != nil {
			out.add(Fail, check, s.Addr, "the sidecar's HTTP port does not answer", "Give its --http-bind-address; else look at the container's log. Its lease lapses without it.", s.Err.Error())
			continue
		}
		if s.Ready {
			out.ok(check, s.Addr, "ready")
		} else {
			out.add(Fail, check, s.Addr, "the sidecar is not ready", "The text says why; an engine that it cannot reach has no holds in the index.", s.Says)
		}
		if !s.Metrics.Has("kvsidecar_build_info") {
			out.add(Warn, "sidecars.metrics", s.Addr, "its /metrics are not a sidecar's, or cannot be read", "Give the addresses of kvsidecar; lookup pods go to --pods.")
			continue
		}
		version := s.Metrics.Label("kvsidecar_build_info", "version")
		versions[version] = append(versions[version], s.Addr)
		checkSidecarEngine(s, out)
		checkSidecarRedis(s, out)
		checkSidecarBlocks(f, s, out)
	}
	if len(versions) > 1 {
		out.add(Warn, "sidecars.version", "", "sidecars run different versions", "For longer than a rollout this is one that is stuck.", groups(versions)...)
	}
}

func checkSidecarEngine(s *SidecarFacts, out *findings) {
	const check = "sidecars.engine"
	m := s.Metrics
	before := len(*out)
	if m.Has("kvsidecar_engine_live") && m.Sum("kvsidecar_engine_live") == 0 {
		out.add(Fail, check, s.Addr, "no engine is followed: what the index has of it is not certain", "Check --engine-endpoint, and that the engine's event publisher is on (vLLM: --kv-events-config).")
	}
	if lost := m.Sum("kvsidecar_lost_batches_total"); lost > 0 {
		out.add(Warn, check, s.Addr, "events were lost for good, so blocks stay out of the index until they are stored again", "Give --engine-replay-endpoint, and the engine a larger replay buffer.",
			fmt.Sprintf("%.0f batches lost, %.0f gaps, %.0f failed replays", lost, m.Sum("kvsidecar_gaps_total"), m.Sum("kvsidecar_replay_failures_total")))
	}
	if bad := m.By("kvsidecar_malformed_batches_total", "reason"); len(bad) > 0 {
		out.add(Warn, check, s.Addr, "event batches could not be read", "An engine release that this sidecar does not know? Its log has the first bytes.", sumsText(bad))
	}
	if lag := m.Max("kvsidecar_event_lag_seconds"); lag > eventLagWarn {
		out.add(Warn, check, s.Addr, "events arrive late", "The sidecar is short of CPU, or the engine's clock and this machine's disagree.", "event_lag_seconds "+secondsText(lag))
	}
	if bad := m.Sum("kvsidecar_scrapes_total", "result", "error"); bad > 0 && bad > m.Sum("kvsidecar_scrapes_total", "result", "ok") {
		out.add(Warn, check, s.Addr, "most scrapes of the engine's metrics fail: no pressure, no TENANT_HOT", "Check --engine-metrics-url and --engine-model-name.", sumsText(m.By("kvsidecar_scrapes_total", "result")))
	}
	if len(*out) == before {
		out.ok(check, s.Addr, "the engine is followed")
	}
}

func checkSidecarRedis(s *SidecarFacts, out *findings) {
	const check = "sidecars.redis"
	m := s.Metrics
	switch {
	case m.Sum("kvsidecar_redis_away") > 0:
		out.add(Fail, check, s.Addr, "the sidecar does not reach Redis: what changes in the engine does not reach the index, and its lease lapses", "Its log has the error; compare its --redis with doctor's.",
			fmt.Sprintf("%.0f changes wait, %.0f failed writes", m.Sum("kvsidecar_pending_changes"), m.Sum("kvsidecar_redis_errors_total")))
	case m.Sum("kvsidecar_redis_foreign_writes_total") > 0:
		out.add(Fail, check, s.Addr, "somebody else writes for the same replica", "Two sidecars share a --replica-id, or a producer reports for it over gRPC too: give each engine one writer and a name of its own.",
			sumsText(m.By("kvsidecar_redis_foreign_writes_total", "replica")))
	case m.Sum("kvsidecar_pending_changes") > pendingWarn:
		out.add(Warn, check, s.Addr, "many changes wait to be written", "Redis or the sidecar is short of CPU: more shards, or a longer write interval.", fmt.Sprintf("%.0f changes", m.Sum("kvsidecar_pending_changes")))
	default:
		out.ok(check, s.Addr, "Redis takes what it writes")
	}
}

// checkSidecarBlocks compares what the sidecar believes with what the index has.
func checkSidecarBlocks(f *Facts, s *SidecarFacts, out *findings) {
	const check = "sidecars.blocks"
	m := s.Metrics
	kept := m.By("kvsidecar_blocks_kept_out", "reason")
	resident := m.By("kvsidecar_blocks_resident", "replica")
	all, out0 := 0.0, 0.0
	for _, n := range resident {
		all += n
	}
	for _, n := range kept {
		out0 += n
	}
	if out0 > all {
		out.add(Warn, check, s.Addr, "most blocks of the engine are kept out of the index", "docs/sidecar.md explains each reason; unknown_parent: the sidecar joined late, give --engine-replay-endpoint.", sumsText(kept))
	}
	if f.Index == nil || f.Index.Catalog.Total > int64(len(f.Index.Partitions)) {
		return
	}
	held := map[string]int64{}
	for _, m := range f.models() {
		for i := range m.replicas {
			held[m.replicas[i].id] += m.replicas[i].total()
		}
	}
	var missing []string
	for replica, n := range resident {
		has := float64(held[replica])
		if n > 0 && has == 0 || n > 1000 && math.Abs(has-n) > 0.2*n {
			missing = append(missing, fmt.Sprintf("%q: the sidecar has %.0f blocks, the index counts %.0f", replica, n, has))
		}
	}
	if len(missing) > 0 {
		out.add(Fail, check, s.Addr, "the index does not have what the sidecar wrote", "The sidecar writes to another Redis or database, or Redis lost data within the last lease; it should notice and report again.", missing...)
		return
	}
	if out0 <= all {
		var parts []string
		for replica := range resident {
			parts = append(parts, replica)
		}
		out.ok(check, s.Addr, "%.0f blocks of %s are in the index", all, strings.Trim(quoted(parts), " "))
	}
}
