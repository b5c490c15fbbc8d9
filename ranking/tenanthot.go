package ranking

// appendTenantHot appends the replicas that are warm for the tenant in general,
// scored and best first: they serve the domain and have reported a good hit rate
// lately. Nothing is claimed about the prefix, so no tokens and no tier.
func appendTenantHot(dst []Candidate, in *Input, ev *Evidence, k *Knobs) []Candidate {
	maxAgeMS := k.TenantHotMaxAge.Milliseconds()
	if maxAgeMS <= 0 {
		return dst
	}
	for i := range ev.Serving {
		r := &ev.Serving[i]
		age := ev.NowMS - r.StatsAtMS
		// Written so that a hit rate of NaN fails too.
		if r.StatsAtMS == 0 || age >= maxAgeMS || !(r.Stats.HitRate >= k.TenantHotMinHitRate) {
			continue
		}
		recency := freshness(age, maxAgeMS)
		// Stats stay as they were reported; a share above all is not believed.
		rate := min(r.Stats.HitRate, 1)
		dst = append(dst, Candidate{
			ReplicaID: r.ID,
			HitProb:   finite(rate),
			Score: finite(rate * recency *
				pressureFactor(r, ev.NowMS, in.TTLMS, k.PressureWeight) *
				sloFactor(recency, in.TTFTMS, k)),
		})
	}
	if len(dst) > 1 { // in the order of the serving set, which is that of the ids
		o := orders.Get().(*order)
		o.bestFirst(dst)
		orders.Put(o)
	}
	return dst
}
