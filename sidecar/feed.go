package sidecar

import (
	"inferencecache.io/lookuptier/sidecar/events"
	"inferencecache.io/lookuptier/sidecar/follow"
)

// feed takes what one endpoint says and hands it to the ranks it speaks of. It is a
// follow.Sink: its methods are called from one goroutine.
type feed struct {
	side   *Sidecar
	follow *follow.Follower
	// own is the rank that batches without a number belong to. Until a batch names it, its number
	// is a guess: the place of the endpoint among the others.
	own     *rank
	guessed bool
	ranks   map[int]*rank

	joined, replaying, live bool
	complete                bool
}

// rankOf finds or makes the rank of a batch.
func (f *feed) rankOf(n int) *rank {
	if n == events.NoRank {
		return f.own
	}
	if r := f.ranks[n]; r != nil {
		f.guessed = f.guessed && r != f.own
		return r
	}
	if f.guessed {
		f.guessed = false
		delete(f.ranks, int(f.own.number.Load()))
		f.side.renumber(f.own, n)
		f.ranks[n] = f.own
		return f.own
	}
	r := f.side.addRank(n)
	f.ranks[n] = r
	if f.joined {
		f.begin(r)
	}
	r.writer.Live(f.live)
	return r
}

// begin lets a rank write. What the index has of it from before this process is retired, unless
// the engine's past is not known whole and the operator wants it kept.
func (f *feed) begin(r *rank) {
	if f.complete || !f.side.cfg.Keep {
		r.mirror.RetireFirst()
	}
	if !f.replaying {
		r.mirror.Resume()
	}
}

// Apply implements follow.Sink.
func (f *feed) Apply(b *events.Batch) int { return f.rankOf(b.Rank).mirror.Apply(b) }

// Joined implements follow.Sink.
func (f *feed) Joined(complete bool) {
	f.joined, f.complete = true, complete
	for _, r := range f.ranks {
		f.begin(r)
	}
}

// Lost implements follow.Sink.
func (f *feed) Lost() {
	for _, r := range f.ranks {
		r.mirror.Lost()
	}
}

// Restarted implements follow.Sink.
func (f *feed) Restarted() {
	for _, r := range f.ranks {
		r.mirror.Reset()
	}
}

// Replaying implements follow.Sink.
func (f *feed) Replaying(on bool) {
	f.replaying = on
	for _, r := range f.ranks {
		if on {
			r.mirror.Pause()
		} else if f.joined {
			r.mirror.Resume()
		}
	}
}

// Live implements follow.Sink.
func (f *feed) Live(live bool) {
	f.live = live
	for _, r := range f.ranks {
		r.writer.Live(live)
	}
}
