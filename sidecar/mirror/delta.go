package mirror

import (
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// Change is what the index is to be told of one fingerprint.
type Change struct {
	FP      uint64
	Adapter string
	// Tokens is the running sum through the block.
	Tokens int32
	// Tier to store; TierNone to remove.
	Tier ranking.Tier
}

// Delta is one batch of changes on its way to the index, each fingerprint at most
// once. If Retire is set it is the only thing to do.
type Delta struct {
	Retire  bool
	Changes []Change
	holds   []uint32
}

// Collect fills d with at most limit changes, oldest first, and returns false if there are
// none. With limit 0 it only takes what must not wait, a retired number. A Delta must be
// settled before the next is collected.
func (m *Mirror) Collect(d *Delta, limit int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d.Retire, d.Changes, d.holds = false, d.Changes[:0], d.holds[:0]
	l := &m.ledger
	if waits := l.paused || limit == 0; waits && (!l.retire || !l.urgent) {
		return false
	}
	if l.retire {
		l.retire, l.urgent, d.Retire, l.underWay = false, false, true, true
		return true
	}
	for l.head < len(l.queue) && len(d.Changes) < limit {
		i := l.queue[l.head]
		l.head++
		h := l.holds.at(i)
		h.flags &^= queued
		want := h.want()
		if want == h.written && (h.flags&refresh == 0 || want == ranking.TierNone) {
			h.flags &^= refresh
			l.reap(i)
			continue
		}
		h.flags = inFlight
		d.Changes = append(d.Changes, Change{FP: h.fp, Adapter: m.adapters[h.adapter], Tokens: h.tokens, Tier: want})
		d.holds = append(d.holds, i)
	}
	if l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
		if cap(l.queue) > 16*pageSize {
			l.queue = nil // a burst's queue is not kept for good
		}
	}
	l.underWay = len(d.Changes) > 0
	return l.underWay
}

// Pause keeps changes back until Resume, so that a replay of what was applied before shows
// its end only, not the states on the way. Restart and Lost are told all the same.
func (m *Mirror) Pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.paused = true
}

// Resume ends Pause.
func (m *Mirror) Resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.paused = false
	m.signal()
}

// Settle ends a Delta. written tells whether the index has taken all of it; if not, nobody
// knows how much it took, and all of it will be written again.
func (m *Mirror) Settle(d *Delta, written bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &m.ledger
	l.underWay = false
	if d.Retire {
		if written {
			m.forget(ranking.TierNone)
		} else {
			l.retire, l.urgent = true, true
		}
	}
	seen := m.seconds(now)
	for n, i := range d.holds {
		h := l.holds.at(i)
		h.flags &^= inFlight
		h.written = unsure
		if written {
			h.written, h.seen = d.Changes[n].Tier, seen
		}
		if h.want() != h.written {
			l.enqueue(i, h)
		}
		l.reap(i)
	}
	d.Retire, d.Changes, d.holds = false, d.Changes[:0], d.holds[:0]
	m.signal()
}

// Forget says that the index lost what it was told before: everything resident is to be
// written again. A write without a reply may have come after the loss, so what it told stays
// uncertain. A Delta under way is not touched: settled afterwards, it counts as told after the loss.
func (m *Mirror) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(unsure)
	m.signal()
}

// forget takes all holds for absent from the index, except those written as spared.
func (m *Mirror) forget(spared ranking.Tier) {
	l := &m.ledger
	l.each(func(i uint32, h *hold) {
		if h.written != spared {
			h.written = ranking.TierNone
		}
		if h.want() != ranking.TierNone {
			l.enqueue(i, h)
		}
		l.reap(i)
	})
}

// Refresh visits share (0–1) of the mirror, going round it, and queues what was written
// longer than age ago and is still there, so that it does not age out of the index.
// It returns how many it queued.
func (m *Mirror) Refresh(share float64, age time.Duration, now time.Time) (refreshed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := m.blocks.end()
	at := m.seconds(now)
	for range min(int(share*float64(end))+1, int(end)) {
		m.cursor++
		if m.cursor >= end {
			m.cursor = 0
			continue
		}
		i := m.cursor
		b := m.blocks.at(i)
		if b.media == 0 || b.hold == 0 {
			continue
		}
		h := m.ledger.holds.at(b.hold)
		if b.media == evictedBit {
			if h.written != ranking.TierNone && at-h.seen >= uint32(m.opts.KeepFor/time.Second) {
				m.setMedia(b, 0)
				m.free(i)
			}
			continue
		}
		if h.written == h.want() && h.flags&(queued|inFlight) == 0 && at-h.seen >= uint32(age/time.Second) {
			m.ledger.enqueue(b.hold, h)
			h.flags |= refresh
			refreshed++
		}
	}
	m.signal()
	return refreshed
}

// seconds is the mirror's clock.
func (m *Mirror) seconds(now time.Time) uint32 { return uint32(max(now.Sub(m.born), 0) / time.Second) }
