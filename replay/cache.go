package replay

// noSlot ends the list of slots.
const noSlot = -1

// Cache is an engine's KV cache: at most a fixed number of blocks, the least
// recently used one evicted first.
//
// Within one chain a block counts as more recent than those that follow it, as
// engines free a finished request from its end. So a block never outlives its
// parent, and a resident block is always reusable.
//
// A Cache is for one goroutine. Create it with NewCache.
type Cache struct {
	capacity int // 0 = unbounded
	slots    []slot
	bySlot   map[uint64]int
	free     []int
	// newest and oldest end the list of slots by age; noSlot when it is empty.
	newest, oldest int
}

type slot struct {
	id           uint64
	newer, older int
}

// Delta is what one request did to a cache.
type Delta struct {
	// Reused is how many leading blocks of the chain were found resident.
	Reused int
	// Stored is how many blocks after those are resident now: chain[Reused:Reused+Stored].
	// Blocks of a chain that is longer than the whole cache stay out of it.
	Stored int
	// Evicted lists the blocks that made room, in the order in which they went.
	// None of them is of the request's own chain.
	Evicted []uint64
}

// NewCache makes an empty cache of so many blocks; 0 = unbounded.
func NewCache(capacity int) *Cache {
	return &Cache{capacity: capacity, bySlot: map[uint64]int{}, newest: noSlot, oldest: noSlot}
}

// Len is the number of resident blocks.
func (c *Cache) Len() int { return len(c.bySlot) }

// Contains says whether a block is resident, and leaves its age alone.
func (c *Cache) Contains(id uint64) bool {
	_, ok := c.bySlot[id]
	return ok
}

// Serve runs one request's chain through the cache. Only the leading run of
// resident blocks is reused: a block without its parent is computed and stored again.
func (c *Cache) Serve(chain []uint64) Delta {
	var d Delta
	for d.Reused < len(chain) && c.Contains(chain[d.Reused]) {
		d.Reused++
	}
	keep := len(chain)
	if c.capacity > 0 {
		keep = min(keep, c.capacity)
	}
	d.Stored = max(keep-d.Reused, 0)
	for i := keep - 1; i >= 0; i-- {
		c.touch(chain[i])
	}
	// The chain is the newest part of the list and fits, so it is never its own victim.
	for c.capacity > 0 && c.Len() > c.capacity {
		d.Evicted = append(d.Evicted, c.evictOldest())
	}
	return d
}

func (c *Cache) touch(id uint64) {
	at, ok := c.bySlot[id]
	switch {
	case ok && at == c.newest:
		return
	case ok:
		c.unlink(at)
	case len(c.free) > 0:
		at = c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
	default:
		at = len(c.slots)
		c.slots = append(c.slots, slot{})
	}
	c.slots[at] = slot{id: id, newer: noSlot, older: c.newest}
	if c.newest != noSlot {
		c.slots[c.newest].newer = at
	}
	c.newest = at
	if c.oldest == noSlot {
		c.oldest = at
	}
	c.bySlot[id] = at
}

func (c *Cache) evictOldest() uint64 {
	at := c.oldest
	id := c.slots[at].id
	c.unlink(at)
	delete(c.bySlot, id)
	c.free = append(c.free, at)
	return id
}

func (c *Cache) unlink(at int) {
	s := c.slots[at]
	if s.newer != noSlot {
		c.slots[s.newer].older = s.older
	} else {
		c.newest = s.older
	}
	if s.older != noSlot {
		c.slots[s.older].newer = s.newer
	} else {
		c.oldest = s.newer
	}
}
