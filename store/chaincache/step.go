package chaincache

import (
	"math"

	"inferencecache.io/lookuptier/ranking"
)

// stepper takes a lookup's replicas through the first n blocks of one segment:
// those that hold them all stay alive, the runs of the others end and are answers.
type stepper struct {
	s      *segment
	n      int
	q      *Query
	a      *Answer
	start  int     // the number of blocks before the segment
	tokens int64   // their sum of the request's counts
	counts []int32 // the request's counts of the n blocks
	summed bool    // a.sums are those of counts
}

// whole goes by the segment's digest, which covers exactly n blocks.
func (st *stepper) whole(c *Cache) {
	d := st.s.digested(c)
	stale := 0
	for i := range d.held {
		if d.held[i].seenMS <= st.q.CutoffMS {
			stale++
		}
	}
	switch {
	case stale > maxStale:
		st.blocks()
	case st.start == 0:
		st.enter(d)
	default:
		st.intersect(d)
	}
}

// maxStale is up to how many replicas with a stale hold are followed block by block
// on their own, rather than all replicas together.
const maxStale = 2

// enter lets in who holds the first block of the chain, dead numbers excepted.
func (st *stepper) enter(d *digest) {
	a, cutoff := st.a, st.q.CutoffMS
	for i := range d.held {
		h := &d.held[i]
		index := a.Roster.Find(h.number)
		if index < 0 {
			continue
		}
		r := runner{seenMS: h.seenMS, number: h.number, index: int32(index), tier: h.tier}
		if h.seenMS <= cutoff {
			// Some block of the segment is stale: which, only the blocks tell.
			r.seenMS, r.tier = math.MaxInt64, ranking.TierNone
			depth := st.freshDepth(&r, int(h.depth))
			st.settle(r, depth)
			continue
		}
		st.settle(r, int(h.depth))
	}
}

// intersect keeps who holds the segment too. Both lists are sorted by number.
func (st *stepper) intersect(d *digest) {
	was := st.a.alive
	st.a.alive = was[:0] // settle writes behind the reader
	at, cutoff := 0, st.q.CutoffMS
	list := d.held
	for _, r := range was {
		for at < len(list) && list[at].number < r.number {
			at++
		}
		if at == len(list) || list[at].number != r.number {
			st.settle(r, 0)
			continue
		}
		h := &list[at]
		at++
		if h.seenMS <= cutoff {
			depth := st.freshDepth(&r, int(h.depth))
			st.settle(r, depth)
			continue
		}
		r.seenMS = min(r.seenMS, h.seenMS)
		r.tier = max(r.tier, h.tier)
		st.settle(r, int(h.depth))
	}
}

// blocks goes through the n blocks one by one.
func (st *stepper) blocks() {
	a := st.a
	if st.start == 0 {
		list := st.s.blocks[0].holds.Load().list
		for i := range list {
			h := &list[i]
			if h.seenMS.Load() <= st.q.CutoffMS {
				continue
			}
			if index := a.Roster.Find(h.number); index >= 0 {
				a.alive = append(a.alive, runner{seenMS: math.MaxInt64, number: h.number, index: int32(index)})
			}
		}
	}
	for i := 0; i < st.n && len(a.alive) > 0; i++ {
		list := st.s.blocks[i].holds.Load().list
		was := a.alive
		a.alive = was[:0]
		at := 0
		for _, r := range was {
			for at < len(list) && list[at].number < r.number {
				at++
			}
			if at == len(list) || list[at].number != r.number {
				st.finish(r, i)
				continue
			}
			h := &list[at]
			seen := h.seenMS.Load()
			if seen <= st.q.CutoffMS {
				st.finish(r, i)
				continue
			}
			r.seenMS = min(r.seenMS, seen)
			r.tier = max(r.tier, h.tier())
			a.alive = append(a.alive, r)
		}
	}
}

// freshDepth is how many of the segment's first depth blocks r holds freshly; it
// works the oldest and coldest of them into r.
func (st *stepper) freshDepth(r *runner, depth int) int {
	for i, b := range st.s.blocks[:depth] {
		set := b.holds.Load()
		at, has := set.find(r.number)
		if !has {
			return i
		}
		seen := set.list[at].seenMS.Load()
		if seen <= st.q.CutoffMS {
			return i
		}
		r.seenMS = min(r.seenMS, seen)
		r.tier = max(r.tier, set.list[at].tier())
	}
	return depth
}

// settle keeps a replica that holds the whole segment, and ends the run of another.
func (st *stepper) settle(r runner, depth int) {
	if depth == st.n {
		st.a.alive = append(st.a.alive, r)
		return
	}
	st.finish(r, depth)
}

// finish makes a run of a replica that holds depth of the n blocks and all before.
func (st *stepper) finish(r runner, depth int) {
	blocks := st.start + depth
	if blocks == 0 {
		return
	}
	tokens := st.tokens
	if depth > 0 {
		tokens += st.sum(depth)
	}
	st.a.Runs = append(st.a.Runs, ranking.Run{
		Replica: int(r.index), Tokens: tokens, SeenMS: r.seenMS, Tier: r.tier, Blocks: blocks,
	})
}

// sum of the request's counts of the segment's first depth blocks. Many runs may
// end in one segment, so the sums are worked out once.
func (st *stepper) sum(depth int) int64 {
	if !st.summed {
		sums := st.a.sums[:0]
		var t int64
		for _, c := range st.counts {
			t += int64(c)
			sums = append(sums, t)
		}
		st.a.sums, st.summed = sums, true
	}
	return st.a.sums[depth-1]
}
