package mirror

import (
	"hash/maphash"

	"inferencecache.io/lookuptier/ranking"
)

// unsure is the written tier of a hold of which nobody knows whether the index has it:
// a write whose reply was lost. Whatever is wanted must be written again.
const unsure = ranking.Tier(255)

const (
	queued   = 1 << iota // waits in the queue
	inFlight             // part of a Delta that was not settled yet
	refresh              // to be written although nothing changed
)

// hold is one fingerprint in one adapter's partition: 40 bytes.
type hold struct {
	fp uint64
	// tokens is the running sum through the block.
	tokens int32
	// copies counts the resident blocks whose warmest tier is T1, T2, T3.
	copies [3]uint32
	// refs counts blocks that name the hold, resident or not.
	refs uint32
	// seen is when it was last written, in seconds of the mirror's clock.
	seen    uint32
	adapter uint16
	// written is the tier that the index was last told, TierNone if it has no such hold.
	written ranking.Tier
	flags   uint8
}

// want is the tier that the index should have.
func (h *hold) want() ranking.Tier {
	for i, n := range h.copies {
		if n > 0 {
			return ranking.Tier(i + 1)
		}
	}
	return ranking.TierNone
}

type holdKey struct {
	fp      uint64
	adapter uint16
}

// ledger is the table of holds and the queue of those that differ from the index.
type ledger struct {
	seed  maphash.Seed
	holds arena[hold]
	byFP  table
	// queue holds each index at most once, oldest first from head on.
	queue []uint32
	head  int
	// resident counts holds with a wanted tier, by tier.
	resident [4]int
	// retire asks to retire the replica's number before anything else is written.
	retire bool
	// paused: changes wait for the end of a replay, unless urgent.
	paused, urgent bool
	// underWay: a Delta was collected and not settled yet.
	underWay bool
}

func (l *ledger) init() {
	l.seed = maphash.MakeSeed()
	l.byFP.hash = func(i uint32) uint64 {
		h := l.holds.at(i)
		return maphash.Comparable(l.seed, holdKey{h.fp, h.adapter})
	}
}

// acquire finds or makes the hold and counts one more block that names it.
func (l *ledger) acquire(fp uint64, adapter uint16, tokens int32) uint32 {
	hash := maphash.Comparable(l.seed, holdKey{fp, adapter})
	i := l.byFP.find(hash, func(i uint32) bool {
		h := l.holds.at(i)
		return h.fp == fp && h.adapter == adapter
	})
	if i == 0 {
		i = l.holds.add()
		h := l.holds.at(i)
		h.fp, h.adapter, h.tokens = fp, adapter, tokens
		l.byFP.insert(hash, i)
	}
	l.holds.at(i).refs++
	return i
}

// release is the opposite of acquire.
func (l *ledger) release(i uint32) {
	l.holds.at(i).refs--
	l.reap(i)
}

// move counts a block's change of tier.
func (l *ledger) move(i uint32, from, to ranking.Tier) {
	if from == to {
		return
	}
	h := l.holds.at(i)
	before := h.want()
	if from != ranking.TierNone {
		h.copies[from-1]--
	}
	if to != ranking.TierNone {
		h.copies[to-1]++
	}
	l.rewant(i, h, before)
}

// rewant follows up a change of what is wanted.
func (l *ledger) rewant(i uint32, h *hold, before ranking.Tier) {
	want := h.want()
	l.resident[before]--
	l.resident[want]++
	if want != h.written {
		l.enqueue(i, h)
	}
}

func (l *ledger) enqueue(i uint32, h *hold) {
	if h.flags&(queued|inFlight) != 0 {
		return // a Delta under way looks again when it is settled
	}
	h.flags |= queued
	if l.head > len(l.queue)/2 && l.head > pageSize {
		l.queue = append(l.queue[:0], l.queue[l.head:]...)
		l.head = 0
	}
	l.queue = append(l.queue, i)
}

// reap frees a hold that nobody needs: no block names it, the index has none.
func (l *ledger) reap(i uint32) {
	h := l.holds.at(i)
	if h.refs > 0 || h.written != ranking.TierNone || h.flags&(queued|inFlight) != 0 {
		return
	}
	l.byFP.remove(maphash.Comparable(l.seed, holdKey{h.fp, h.adapter}), i)
	l.holds.drop(i)
}

// each visits every hold in use; f may not add holds, and may reap the one it is given.
func (l *ledger) each(f func(i uint32, h *hold)) {
	for i := uint32(1); i < l.holds.end(); i++ {
		if h := l.holds.at(i); h.inUse() {
			f(i, h)
		}
	}
}

func (h *hold) inUse() bool { return h.refs > 0 || h.written != ranking.TierNone || h.flags != 0 }

// pending is how many holds wait to be written.
func (l *ledger) pending() int {
	n := len(l.queue) - l.head
	if l.retire || l.underWay {
		n++
	}
	return n
}
