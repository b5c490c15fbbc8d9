package doctor

import (
	"fmt"
	"strings"
)

func checkProducers(f *Facts, out *findings) {
	models := f.models()
	if len(models) == 0 {
		return
	}
	for _, m := range models {
		checkLeases(f, m, out)
		checkSilence(f, m, out)
		checkStats(f, m, out)
		checkSchemes(m, out)
		checkBlockSizes(m, out)
		checkOrphans(m, out)
		checkExpired(f, m, out)
	}
}

func checkLeases(f *Facts, m *model, out *findings) {
	const check = "producers.lease"
	var lapsed []string
	never, alive := 0, 0
	for i := range m.replicas {
		r := &m.replicas[i]
		switch {
		case r.lapsed:
			lapsed = append(lapsed, fmt.Sprintf("%q: lease lapsed %s ago, %d holds do not count", r.id, ageMS(f.Index.NowMS-r.LeaseMS), r.total()))
		case r.LeaseMS == 0:
			never++
		default:
			alive++
		}
	}
	const fix = "Look at those engines' sidecars: kubectl get pod, /readyz, kvsidecar_redis_away. A sidecar that comes back within 5 minutes has all its holds again; one that is gone for good is swept away."
	switch {
	case len(lapsed) > 0 && alive+never == 0:
		out.add(Fail, check, m.String(), "every replica let its lease lapse: nobody serves this model, and lookups get UNKNOWN_… or NO_HINT", fix, lapsed...)
	case len(lapsed) > 0:
		out.add(Warn, check, m.String(), fmt.Sprintf("%d of %s let the lease lapse and get no requests by hint", len(lapsed), count(len(m.replicas), "replica")), fix, lapsed...)
	case len(m.replicas) > 0:
		out.ok(check, m.String(), "%s: %d with a lease that runs, %d without one (they live by evictionTTL)", count(len(m.replicas), "replica"), alive, never)
	}
}

// checkSilence looks at replicas without a lease: only their age tells.
func checkSilence(f *Facts, m *model, out *findings) {
	ttl := f.evictionTTL(m.Tenant).Milliseconds()
	var silent []string
	for i := range m.replicas {
		r := &m.replicas[i]
		last := max(r.AliveMS, r.StatsMS, r.newestMS)
		if r.LeaseMS == 0 && last != 0 && f.Index.NowMS-last >= ttl && (r.newestMS != 0 || r.total() == 0) {
			silent = append(silent, fmt.Sprintf("%q: last sign of life %s ago", r.id, ageMS(f.Index.NowMS-last)))
		}
	}
	if len(silent) > 0 {
		out.add(Warn, "producers.silent", m.String(), fmt.Sprintf("%s gave no sign of life for the evictionTTL of %s: none of their holds counts", count(len(silent), "replica"), ageText(f.evictionTTL(m.Tenant))),
			"Check that their producers run. What is gone for good: lookupctl clear --tenant … --model … --replica ….", silent...)
	}
}

func checkStats(f *Facts, m *model, out *findings) {
	const check = "producers.stats"
	ttl := f.evictionTTL(m.Tenant).Milliseconds()
	var hollow, saturated []string
	serving, without := 0, 0
	for i := range m.replicas {
		r := &m.replicas[i]
		if r.lapsed {
			continue
		}
		if r.total() == 0 {
			if r.StatsMS != 0 {
				hollow = append(hollow, fmt.Sprintf("%q: stats %s ago, hit rate %.2f, no holds", r.id, ageMS(f.Index.NowMS-r.StatsMS), r.Stats.HitRate))
			}
			continue
		}
		serving++
		switch {
		case r.StatsMS == 0:
			without++
		case f.Index.NowMS-r.StatsMS < ttl && r.Stats.Pressure >= 1:
			saturated = append(saturated, fmt.Sprintf("%q: pressure %.2f, %s ago", r.id, r.Stats.Pressure, ageMS(f.Index.NowMS-r.StatsMS)))
		}
	}
	if len(hollow) > 0 {
		out.add(Warn, "producers.no_holds", m.String(), count(len(hollow), "replica")+" reported stats but no hold: they serve nothing",
			"Right after a start this is normal. Else: an empty hash_scheme in reports (ingest_dropped_total{reason=\"empty_scheme\"}), prefix caching off in the engine, events off, or all blocks kept out (kvsidecar_blocks_kept_out).", hollow...)
	}
	if len(saturated) > 0 {
		out.add(Warn, "producers.pressure", m.String(), fmt.Sprintf("%d of %s that serve report pressure 1 or more: with --pressure-weight 1 their matches score 0", len(saturated), count(serving, "replica")),
			"Add engines, or lower --pressure-weight if a queue at the engine that has the cache beats a recomputation elsewhere.", saturated...)
	}
	if len(hollow)+len(saturated) == 0 && serving > 0 {
		text := count(serving, "replica") + " with live holds"
		if without > 0 {
			text += fmt.Sprintf("; %d never reported stats: they are ranked without pressure and are never TENANT_HOT", without)
		}
		out.ok(check, m.String(), "%s", text)
	}
}

func checkSchemes(m *model, out *findings) {
	const check = "producers.schemes"
	if len(m.schemes) < 2 {
		return
	}
	var evidence []string
	related := false
	for i, s := range m.schemes {
		var who []string
		for j := range m.replicas {
			if m.replicas[j].holds[s] > 0 {
				who = append(who, m.replicas[j].id)
			}
		}
		evidence = append(evidence, fmt.Sprintf("%q: %s", s, quoted(who)))
		for _, other := range m.schemes[:i] {
			related = related || Spelling(s) == Spelling(other) || strings.HasPrefix(s, other) || strings.HasPrefix(other, s)
		}
	}
	text := "holds stand under several hash schemes: a lookup under one never matches the others"
	if related {
		text = "holds stand under hash schemes of related names: one side has the name wrong, and lookups under it get UNKNOWN_HASH_SCHEME or too few matches"
	}
	out.add(Warn, check, m.String(), text, "Unless engines of different kinds serve this model on purpose, give all sidecars one --hash-scheme, and gateways the same.", evidence...)
}

// checkOrphans looks for counts that no replica owns.
func checkOrphans(m *model, out *findings) {
	var orphans []string
	for _, p := range m.parts {
		owned := map[uint32]bool{}
		for _, r := range p.Replicas {
			owned[r.Number] = true
		}
		for _, c := range p.Counts {
			if !owned[c.Number] {
				orphans = append(orphans, fmt.Sprintf("shard %d: number %d counts %d holds", p.Shard, c.Number, c.Holds))
			}
		}
	}
	if len(orphans) > 0 {
		out.add(Warn, "producers.orphans", m.String(), "holds are counted for replicas whose names are gone: Redis lost part of the partition",
			"See redis.eviction_policy: an evicting Redis does this. The next sweep repairs the counts; sidecars notice and report again.", orphans...)
	}
}

// checkExpired tells when most of what is sampled is too old to count.
func checkExpired(f *Facts, m *model, out *findings) {
	ttl := f.evictionTTL(m.Tenant).Milliseconds()
	all, old := 0, 0
	owned := map[[2]uint32]bool{}
	for _, p := range m.parts {
		for _, r := range p.Replicas {
			owned[[2]uint32{uint32(p.Shard), r.Number}] = true
		}
		for _, sp := range p.Spaces {
			for _, holds := range sp.Samples {
				for _, h := range holds {
					if owned[[2]uint32{uint32(p.Shard), h.Replica}] {
						all++
						if f.Index.NowMS-h.SeenMS >= ttl {
							old++
						}
					}
				}
			}
		}
	}
	if all > 0 && 2*old > all {
		out.add(Warn, "producers.expired", m.String(), fmt.Sprintf("most holds are older than the evictionTTL of %s and never match", ageText(f.evictionTTL(m.Tenant))),
			"Check that sidecars refresh what stays resident (kvsidecar_holds_refreshed_total); producers over gRPC must report again within evictionTTL, or lengthen it in the CachePolicy.", fmt.Sprintf("%d of %d sampled holds", old, all))
	}
}
