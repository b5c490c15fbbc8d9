package scrape

import (
	"math"

	"inferencecache.io/lookuptier/ranking"
)

// judge makes stats of a reading; nil if there is neither load nor cache use in it.
//
//	load     = min(1, (running + WaitingWeight × waiting) / Ceiling)
//	pressure = min(1, max(load, CacheWeight × usage))
//
// Pressure is the larger of the two because either alone makes a replica slow: a full
// batch queues, and a full cache preempts.
func (s *Scraper) judge(rank int, r *reading) *ranking.Stats {
	if !r.has[running] && !r.has[waiting] && !r.has[usage] {
		return nil
	}
	load := min(1, (r.sum[running]+s.opts.WaitingWeight*r.sum[waiting])/s.opts.Ceiling)
	used := min(1, r.top[usage])
	return &ranking.Stats{
		MemoryBytes:   int64(used * float64(s.opts.CacheBytes)),
		HitRate:       s.hitRate(rank, r),
		Pressure:      float32(min(1, max(load, s.opts.CacheWeight*used))),
		ClientVersion: s.opts.Version,
		T2HitTokens:   whole(r.sum[t2hits]),
		T2QueryTokens: whole(r.sum[t2queries]),
	}
}

// hitRate is that of the time since the last scrape. Without queries in it the last known rate
// stands; at the first scrape, and after the counters began again, it is that of all they count.
func (s *Scraper) hitRate(rank int, r *reading) float32 {
	if r.has[rate] {
		return float32(min(1, r.top[rate]))
	}
	if !r.has[hits] || !r.has[queries] {
		return 0
	}
	w := s.last[rank]
	h, q := r.sum[hits], r.sum[queries]
	dh, dq := h-w.hits, q-w.queries
	if !w.known || dh < 0 || dq < 0 {
		if w.known {
			w.rate = 0 // an engine that restarted has an empty cache
		}
		dh, dq = h, q
	}
	if dq > 0 {
		w.rate = float32(min(1, dh/dq))
	}
	w.hits, w.queries, w.known = h, q, true
	s.last[rank] = w
	return w.rate
}

func whole(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(v)
}
