package chaincache

import (
	"errors"

	"inferencecache.io/lookuptier/ranking"
)

var (
	// ErrAhead says that the walk was read after the partition's position. It can be taken
	// once the partition has got there: see Partition.Reached.
	ErrAhead = errors.New("chaincache: the walk is ahead of the partition")
	// ErrRefused says that the walk came too late, the blocks before it are gone, or there is
	// no room. The partition is as it was, or has taken a part.
	ErrRefused = errors.New("chaincache: the walk was refused")
)

// Walked is what a walk of the index read, in one view.
type Walked struct {
	ranking.Space
	// Key is the name of the space in the change log.
	Key string
	// Hashes is the whole chain that was asked for; those before From were known.
	Hashes [][]byte
	From   int
	// Holds are the holds of the blocks from From on, as many as were read; the
	// last may be empty, and so tells that nobody holds it.
	Holds [][]ranking.Hold
	// Pos is the position of the change log in the same view.
	Pos Position
	// Head of the same view; nil if it was not read.
	Head Head
}

// Reading is a walk in flight. While there is one, the partition keeps the changes
// that it applies, so that they can be applied to what the walk brings.
type Reading struct {
	p    *Partition
	done bool
}

// Read announces a walk; call it before the walk is sent, and End when it is over.
func (p *Partition) Read() *Reading {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.readings == 0 {
		p.floor = p.pos
	}
	p.readings++
	return &Reading{p: p}
}

// End is for every Reading, filled or not. It may be called twice.
func (r *Reading) End() {
	p := r.p
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if r.done {
		return
	}
	r.done = true
	if p.readings--; p.readings == 0 {
		p.recent, p.kept = nil, 0
	}
}

// fillBatch bounds the blocks that are put in at a time: other writers wait.
const fillBatch = 512

// Fill puts a walk's blocks into the partition. What the partition knows already is
// newer and stays. The errors are ErrAhead and ErrRefused.
func (r *Reading) Fill(w *Walked) error {
	sets := make([]*holdSet, len(w.Holds))
	for i, h := range w.Holds {
		sets[i] = packHolds(h)
	}
	keys := copiedKeys(w.Hashes[w.From : w.From+len(sets)])
	for from := 0; ; from += fillBatch {
		to := min(from+fillBatch, len(sets))
		if err := r.fill(w, sets[:to], keys, from); err != nil {
			if errors.Is(err, ErrRefused) {
				r.p.c.refused.Add(1)
			}
			return err
		}
		if to == len(sets) {
			return nil
		}
	}
}

// fill puts in the blocks from..len(sets).
func (r *Reading) fill(w *Walked, sets []*holdSet, keys []string, from int) error {
	p := r.p
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.closed.Load() || r.done:
		return ErrRefused
	case w.Pos.Compare(p.pos) > 0:
		return ErrAhead
	case w.Pos.Compare(p.floor) < 0:
		return ErrRefused
	}
	if w.Head != nil && w.Pos.Compare(p.headFrom) >= 0 {
		p.setHead(w.Head)
	}
	if len(sets) == 0 {
		return nil
	}
	if c.trim(); c.crowded() {
		return ErrRefused
	}
	sp := p.spaceFor(w.Space, w.Key)
	p.replay(sp, w.Pos, sets, keys, from)
	grafted := p.graft(sp, w.Hashes[:w.From+len(sets)], w.From+from, func(i int) *block {
		if b := p.findBlock(sp, w.Hashes[i]); b != nil {
			return b
		}
		return p.remember(sp, keys[i-w.From], sets[i-w.From])
	})
	if sp.blocks == 0 {
		p.dropSpace(sp)
	}
	c.trim()
	if !grafted {
		return ErrRefused
	}
	return nil
}

// replay applies to a walk's blocks what happened after it was read.
func (p *Partition) replay(sp *space, since Position, sets []*holdSet, keys []string, from int) {
	if since == p.pos {
		return
	}
	var index map[string][]int
	for _, ch := range p.recent {
		if ch.Pos.Compare(since) <= 0 || !ch.touches(sp) {
			continue
		}
		if index == nil {
			index = make(map[string][]int, len(sets)-from)
			for i := from; i < len(sets); i++ {
				index[keys[i]] = append(index[keys[i]], i)
			}
		}
		ch.each(func(hash []byte, apply func(*holdSet) *holdSet) {
			for _, i := range index[string(hash)] {
				sets[i] = apply(sets[i])
			}
		})
	}
}

// copiedKeys copies hashes. A few share one string: an allocation each would cost
// more than what the last of them to be dropped keeps from the collector.
func copiedKeys(hashes [][]byte) []string {
	const together = 32
	keys := make([]string, len(hashes))
	var all []byte
	for from := 0; from < len(hashes); from += together {
		some := hashes[from:min(from+together, len(hashes))]
		all = all[:0]
		for _, h := range some {
			all = append(all, h...)
		}
		joined := string(all)
		for i, h := range some {
			keys[from+i], joined = joined[:len(h)], joined[len(h):]
		}
	}
	return keys
}
