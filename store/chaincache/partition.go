package chaincache

import (
	"sync/atomic"
	"unsafe"

	"inferencecache.io/lookuptier/ranking"
)

// Head is what a partition knows besides its blocks. It is immutable.
type Head interface {
	// Roster is the serving set of a scheme at a time, Unix ms; nil if nothing serves
	// it. It is called for every lookup and should do no more than look up.
	Roster(scheme string, nowMS int64) *Roster
}

// Partition is what is known of one shard of one (tenant, model), at one position
// of its change log. It is safe for concurrent use.
type Partition struct {
	c *Cache
	// seq is odd while a change is being published.
	seq    atomic.Uint64
	head   atomic.Pointer[headBox]
	closed atomic.Bool
	spaces table[space]
	blocks table[block]
	edges  table[segment]

	// The rest belongs to Cache.mu.
	pos      Position
	headFrom Position // no head read before this position is of use
	byKey    map[string]*space
	readings int       // in flight
	recent   []*Change // applied while one was, oldest first
	floor    Position  // recent has every change after it
	kept     int       // hashes in recent
	waiting  []waiter
}

type headBox struct{ Head }

var partitionBytes = int64(unsafe.Sizeof(Partition{})) + 256

const spaceBytes = 512

// NewPartition makes an empty partition that stands at pos.
func (c *Cache) NewPartition(pos Position) *Partition {
	p := &Partition{c: c, pos: pos, floor: pos, headFrom: pos, byKey: map[string]*space{}}
	p.spaces.hash = func(sp *space) uint64 { return c.spaceHash(sp.name) }
	p.blocks.hash = func(b *block) uint64 { return blockHash(c, b.space, []byte(b.key)) }
	p.edges.hash = func(s *segment) uint64 { return s.edge }
	c.bytes.Add(partitionBytes)
	return p
}

// Position is where the partition stands.
func (p *Partition) Position() Position {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.pos
}

// Head is the partition's head; nil if it has none.
func (p *Partition) Head() Head {
	if h := p.head.Load(); h != nil {
		return h.Head
	}
	return nil
}

// Close empties the partition. Lookups in it are incomplete from now on, fills
// refused, and who waits for a position is let go.
func (p *Partition) Close() {
	const batch = 256 // segments dropped before other writers get their turn
	c := p.c
	c.mu.Lock()
	if p.closed.Swap(true) {
		c.mu.Unlock()
		return
	}
	p.seq.Add(2)
	p.head.Store(nil)
	p.wake(true)
	p.recent = nil
	for n := 0; len(p.byKey) > 0; n++ {
		if n%batch == batch-1 {
			c.mu.Unlock()
			c.mu.Lock()
		}
		for _, sp := range p.byKey {
			s := sp.root.first
			if s == nil {
				s = sp.anywhere.first
			}
			if s == nil {
				p.dropSpace(sp)
			} else {
				s.lastLeaf().evict()
			}
			break
		}
	}
	c.bytes.Add(-partitionBytes - p.blocks.bytes() - p.edges.bytes() - p.spaces.bytes())
	c.mu.Unlock()
}

// spaceFor finds or makes a space.
func (p *Partition) spaceFor(name ranking.Space, key string) *space {
	if sp := p.findSpace(name); sp != nil {
		return sp
	}
	c := p.c
	sp := &space{id: c.nextID(), name: name, key: key, root: c.newStem(), anywhere: c.newStem()}
	p.byKey[key] = sp
	c.bytes.Add(p.spaces.put(sp) + spaceBytes + sp.nameBytes())
	return sp
}

func (sp *space) nameBytes() int64 {
	return int64(len(sp.name.Scheme) + len(sp.name.Adapter) + len(sp.key))
}

func (p *Partition) dropSpace(sp *space) {
	if p.byKey[sp.key] != sp {
		return
	}
	delete(p.byKey, sp.key)
	p.spaces.remove(sp)
	p.c.bytes.Add(-spaceBytes - sp.nameBytes())
}

// remember puts a new block in the table.
func (p *Partition) remember(sp *space, key string, holds *holdSet) *block {
	b := &block{key: key, space: sp}
	b.holds.Store(holds)
	sp.blocks++
	p.c.blocks.Add(1)
	p.c.bytes.Add(b.bytes() + p.blocks.put(b))
	return b
}

func (p *Partition) forget(b *block) {
	p.blocks.remove(b)
	b.space.blocks--
	p.c.blocks.Add(-1)
	p.c.bytes.Add(-b.bytes())
}

// bytes of a block without its slot, which the table accounts for.
func (b *block) bytes() int64 {
	return blockBytes + int64(len(b.key)) + b.holds.Load().bytes()
}
