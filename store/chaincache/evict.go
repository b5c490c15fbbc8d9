package chaincache

// Eviction is S3-FIFO over segments: what comes in waits in a short queue and is
// dropped at its end unless a second lookup wanted it, so that a scan of one-off
// prompts passes by what is kept. What was dropped is remembered by a mark, and if
// it comes back it is kept at once. A segment goes after all that follow it, for a
// suffix is of no use without its prefix.

const (
	maxUses = 3
	// recentShare is the part of the memory for what came in lately: 1/recentShare.
	recentShare = 10
	// segmentWeight is a segment's own weight in the queues, in blocks.
	segmentWeight = 4
	// maxTrim bounds the steps of one trim: other writers wait for it. Each fill and
	// change trims, and fills are refused before the overrun matters.
	maxTrim = 2048
)

// queue is a FIFO of segments.
type queue struct {
	oldest, newest *segment
	weight         int64
}

func (s *segment) weight() int64 { return segmentWeight + int64(len(s.blocks)) }

func (q *queue) push(s *segment) {
	s.queue, s.older, s.newer = q, q.newest, nil
	if q.newest != nil {
		q.newest.newer = s
	} else {
		q.oldest = s
	}
	q.newest = s
	q.weight += s.weight()
}

// insert puts s right behind at, which is in the queue.
func (q *queue) insert(s, at *segment) {
	s.queue, s.older, s.newer = q, at, at.newer
	if at.newer != nil {
		at.newer.older = s
	} else {
		q.newest = s
	}
	at.newer = s
	q.weight += s.weight()
}

func (q *queue) remove(s *segment) {
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		q.oldest = s.newer
	}
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		q.newest = s.older
	}
	s.queue, s.older, s.newer = nil, nil, nil
	q.weight -= s.weight()
}

// trim drops what is wanted least until the memory is within its bound.
func (c *Cache) trim() {
	for n := 0; n < maxTrim && c.bytes.Load() > c.max; n++ {
		s := c.recent.oldest
		if kept := c.kept.oldest; kept != nil && (s == nil || c.recent.weight*recentShare < c.recent.weight+c.kept.weight) {
			if uses := kept.uses.Load(); uses > 0 {
				kept.uses.Store(uses - 1)
				c.kept.remove(kept)
				c.kept.push(kept)
				continue
			}
			s = kept
		} else if s == nil {
			return
		} else if s.uses.Load() > 0 {
			s.uses.Store(0)
			c.recent.remove(s)
			c.kept.push(s)
			continue
		}
		c.evicted.Add(1)
		s.lastLeaf().evict()
	}
}

// crowded tells that a trim could not make room: fills must wait.
func (c *Cache) crowded() bool { return c.bytes.Load() > c.max+c.max/16 }

// lastLeaf is s itself or one of the segments that follow it, with none after it.
func (s *segment) lastLeaf() *segment {
	for s.end.first != nil {
		s = s.end.first
	}
	return s
}

// evict drops a segment that nothing follows, and the blocks that stand nowhere else.
func (s *segment) evict() {
	c := s.part.c
	if s.queue == &c.recent {
		c.departed.add(blockHash(c, s.space, []byte(s.blocks[0].key)))
	}
	s.queue.remove(s)
	s.part.edges.remove(s)
	s.unlink()
	for _, b := range s.blocks {
		if b.leave(s) {
			s.part.forget(b)
		}
	}
	s.bury(c)
	if s.space.blocks == 0 {
		s.part.dropSpace(s.space)
	}
}

// bury closes the account of a segment that left the tree.
func (s *segment) bury(c *Cache) {
	s.dead.Store(true)
	c.bytes.Add(-s.size - s.digest.Swap(nil).bytes())
}

// ghosts remembers, in a fixed memory and not for certain, what was dropped unwanted.
type ghosts []uint32

func newGhosts(bound int64) ghosts {
	n := 1 << 10
	for int64(n) < bound/4096 && n < 1<<20 {
		n *= 2
	}
	return make(ghosts, n)
}

func (g ghosts) add(h uint64) { g[h&uint64(len(g)-1)] = uint32(h>>32) | 1 }

// take tells whether h was dropped, and forgets it.
func (g ghosts) take(h uint64) bool {
	at := &g[h&uint64(len(g)-1)]
	if *at != uint32(h>>32)|1 {
		return false
	}
	*at = 0
	return true
}
