package chaincache

import (
	"errors"
	"fmt"
	"slices"

	"inferencecache.io/lookuptier/ranking"
)

// ErrGap says that a change does not follow on the last one applied. Something was missed,
// and the partition must be closed.
var ErrGap = errors.New("chaincache: a change was missed")

// Change is one entry of the change log. It may be kept by the partition: neither
// it nor what it points to is to be written to again.
type Change struct {
	// Pos is the entry's id, Prev the one before it in the partition.
	Prev, Pos Position
	// Number is the replica number whose holds changed.
	Number uint32
	// Space is the key of the space of Held, SeenMS when they were seen.
	Space  string
	SeenMS int64
	Held   []Entry
	// Evicted are hashes that Number holds no longer in Spaces; nil = in no space.
	Evicted [][]byte
	Spaces  []string
	// HeadChanged: the head is another one from here on, Head if the change tells
	// it; else it must be read again.
	HeadChanged bool
	Head        Head
}

// Entry is one hold of a Change.
type Entry struct {
	Hash   []byte
	Tier   ranking.Tier
	Tokens int32
}

const (
	// maxRecent and maxRecentHashes bound the changes kept for walks in flight.
	maxRecent       = 256
	maxRecentHashes = 16 << 10
)

func (ch *Change) touches(sp *space) bool {
	return len(ch.Held) > 0 && ch.Space == sp.key || len(ch.Evicted) > 0 && slices.Contains(ch.Spaces, sp.key)
}

// each calls yield for every hash of the change.
func (ch *Change) each(yield func(hash []byte, apply func(*holdSet) *holdSet)) {
	for _, e := range ch.Held {
		tail := packTail(e.Tier, e.Tokens)
		yield(e.Hash, func(s *holdSet) *holdSet { return s.with(ch.Number, ch.SeenMS, tail) })
	}
	for _, hash := range ch.Evicted {
		yield(hash, func(s *holdSet) *holdSet { return s.without(ch.Number) })
	}
}

// pending is what becomes of one block: new holds, or a new value of one that it has.
type pending struct {
	b     *block
	holds *holdSet
	at    *hold
	tail  uint32
}

// Apply takes the next change. One that was applied before does nothing; one that
// does not follow on the last is ErrGap.
func (p *Partition) Apply(ch *Change) error {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.closed.Load():
		return fmt.Errorf("%w: the partition is closed", ErrGap)
	case ch.Pos.Compare(p.pos) <= 0:
		return nil
	case ch.Prev != p.pos:
		return fmt.Errorf("%w: %v follows %v, but %v was applied last", ErrGap, ch.Pos, ch.Prev, p.pos)
	}
	p.publish(ch, p.prepare(ch))
	p.retain(ch)
	p.wake(false)
	c.trim()
	return nil
}

// prepare works out what becomes of the blocks that are known. Lookups go on.
func (p *Partition) prepare(ch *Change) []pending {
	work := p.c.work[:0]
	if sp := p.byKey[ch.Space]; sp != nil {
		for i := range ch.Held {
			e := &ch.Held[i]
			if b := p.findBlock(sp, e.Hash); b != nil {
				tail, old := packTail(e.Tier, e.Tokens), b.holds.Load()
				if i, has := old.find(ch.Number); has {
					work = append(work, pending{b: b, at: &old.list[i], tail: tail})
				} else {
					work = append(work, pending{b: b, holds: old.with(ch.Number, ch.SeenMS, tail)})
				}
			}
		}
	}
	if len(ch.Evicted) > 0 {
		for _, key := range ch.Spaces {
			sp := p.byKey[key]
			if sp == nil {
				continue
			}
			for _, hash := range ch.Evicted {
				b := p.findBlock(sp, hash)
				if b == nil {
					continue
				}
				old := b.holds.Load()
				if left := old.without(ch.Number); left != old {
					work = append(work, pending{b: b, holds: left})
				}
			}
		}
	}
	p.c.work = work
	return work
}

// publish makes a change visible as a whole.
func (p *Partition) publish(ch *Change, work []pending) {
	var grown int64
	p.seq.Add(1)
	for i := range work {
		w := &work[i]
		if w.at != nil {
			w.at.set(ch.SeenMS, w.tail)
			continue
		}
		grown += w.holds.bytes() - w.b.holds.Swap(w.holds).bytes()
	}
	// Only now the versions: a digest begun before is void, one begun after sees all.
	var last *segment
	for i := range work {
		b := work[i].b
		if home := b.home.Load(); home != last || b.more != nil {
			b.dirty()
			last = home
		}
	}
	if ch.HeadChanged {
		p.headFrom = ch.Pos
		p.setHead(ch.Head)
	}
	p.pos = ch.Pos
	p.seq.Add(1)
	p.c.bytes.Add(grown)
	clear(work)
}

func (p *Partition) setHead(h Head) {
	if h == nil {
		p.head.Store(nil)
		return
	}
	p.head.Store(&headBox{h})
}

// retain keeps a change for the walks in flight.
func (p *Partition) retain(ch *Change) {
	if p.readings == 0 {
		return
	}
	p.recent = append(p.recent, ch)
	p.kept += ch.hashes()
	for len(p.recent) > maxRecent || p.kept > maxRecentHashes && len(p.recent) > 1 {
		p.floor = p.recent[0].Pos
		p.kept -= p.recent[0].hashes()
		p.recent[0] = nil
		p.recent = p.recent[1:]
	}
}

func (ch *Change) hashes() int { return len(ch.Held) + len(ch.Evicted)*max(1, len(ch.Spaces)) }

// waiter waits for a position.
type waiter struct {
	pos Position
	ch  chan struct{}
}

// Reached is closed once the partition stands at pos or later, or is closed.
func (p *Partition) Reached(pos Position) <-chan struct{} {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	w := waiter{pos: pos, ch: make(chan struct{})}
	if p.closed.Load() || pos.Compare(p.pos) <= 0 {
		close(w.ch)
		return w.ch
	}
	p.waiting = append(p.waiting, w)
	return w.ch
}

func (p *Partition) wake(everyone bool) {
	still := p.waiting[:0]
	for _, w := range p.waiting {
		if everyone || w.pos.Compare(p.pos) <= 0 {
			close(w.ch)
		} else {
			still = append(still, w)
		}
	}
	clear(p.waiting[len(still):])
	p.waiting = still
}
