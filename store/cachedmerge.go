package store

import (
	"sync/atomic"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store/chaincache"
)

// seating is the merged serving set of all shards. Rosters change seldom, so the
// last one mostly fits.
type seating struct {
	rosters  []*chaincache.Roster
	replicas []ranking.Replica
	seats    [][]int
}

func (t *seating) fits(shards []shardAnswer) bool {
	if t == nil || len(t.rosters) != len(shards) {
		return false
	}
	for i := range shards {
		if t.rosters[i] != shards[i].roster {
			return false
		}
	}
	return true
}

func (m *matching) merge(ev *ranking.Evidence) {
	if !m.seats.fits(m.shards) {
		last := m.c.seatings(m.q)
		if m.seats = last.Load(); !m.seats.fits(m.shards) {
			m.seats = newSeating(m.shards)
			last.Store(m.seats)
		}
	}
	ev.Serving = m.seats.replicas
	for i := range m.shards {
		for _, run := range m.shards[i].runs {
			run.Replica = m.seats.seats[i][run.Replica]
			ev.Runs = append(ev.Runs, run)
		}
	}
}

func newSeating(shards []shardAnswer) *seating {
	t := &seating{}
	sets := make([]*Serving, len(shards))
	for i := range shards {
		r := shards[i].roster
		t.rosters = append(t.rosters, r)
		if r != nil {
			sets[i] = &Serving{Replicas: r.Replicas}
		}
	}
	t.replicas, t.seats = merge(sets)
	return t
}

// seatings is where the last seating of the query's domain is kept. It hangs on the
// first shard, which is as good as any; a domain that is not followed has none.
func (c *Cached) seatings(q *ranking.Query) *atomic.Pointer[seating] {
	for shard := range c.shards {
		if f := c.find(Partition{Scope: q.Scope, Shard: shard}); f != nil {
			return &f.seating
		}
	}
	return new(atomic.Pointer[seating])
}
