package chaincache

// The functions of this file change the tree. Their callers hold Cache.mu. None of
// them changes what a lookup answers, so none touches the sequence number: a
// lookup that meets them half way finds a chain whole, or shorter than it is.

// graft makes the chain reachable in the tree up to its end. The first known
// blocks must be in the tree, else it does nothing and returns false; the others
// are those of fresh, which are in the table.
func (p *Partition) graft(sp *space, chain [][]byte, known int, fresh func(i int) *block) bool {
	at, done := sp.root, 0
	var last *segment
	for done < len(chain) {
		if s := p.findSegment(sp, at, chain[done:]); s != nil {
			n := s.match(chain[done:])
			done += n
			if n < len(s.blocks) {
				if done == len(chain) {
					return true // it ends inside; lookups will say if that is worth a cut
				}
				s = p.split(s, n)
			}
			at, last = s.end, s
			continue
		}
		if done < known {
			return false
		}
		run := p.gather(done, min(len(chain), done+maxSegment), fresh)
		switch {
		case len(run) == 0:
			// The block has too many places: all chains that come to it meet here.
			p.attach(sp, sp.anywhere, []*block{fresh(done)})
		case last != nil && at.first == nil && len(last.blocks)+len(run) <= maxSegment:
			last = p.extend(last, run)
			at = last.end
			done += len(run)
		default:
			p.attach(sp, at, run)
		}
	}
	return true
}

// gather lists blocks for one segment, as far as they may have one more place.
func (p *Partition) gather(from, to int, fresh func(i int) *block) []*block {
	run := make([]*block, 0, to-from)
	for i := from; i < to; i++ {
		b := fresh(i)
		if b.places() >= maxPlaces {
			break
		}
		run = append(run, b)
	}
	return run
}

// attach makes a segment of blocks that begins at a stem.
func (p *Partition) attach(sp *space, up *stem, blocks []*block) {
	c := p.c
	s := &segment{up: up, end: c.newStem(), part: p, space: sp}
	s.setBlocks(blocks)
	s.edge = edgeHash(c, up, []byte(blocks[0].key))
	for _, b := range blocks {
		b.enter(s)
	}
	s.link()
	if c.departed.take(blockHash(c, sp, []byte(blocks[0].key))) {
		c.kept.push(s)
	} else {
		c.recent.push(s)
	}
	c.bytes.Add(s.size + p.edges.put(s))
}

// extend puts more blocks behind a segment that nothing follows yet.
func (p *Partition) extend(s *segment, more []*block) *segment {
	blocks := make([]*block, 0, len(s.blocks)+len(more))
	blocks = append(append(blocks, s.blocks...), more...)
	// A new stem: a lookup that is still in s must not find what follows the longer one.
	t := p.replacement(s, blocks, p.c.newStem())
	p.takeOver(s, t)
	for _, b := range blocks {
		b.leave(s)
		b.enter(t)
	}
	s.queue.insert(t, s)
	s.queue.remove(s)
	s.bury(p.c)
	return t
}

// split cuts a segment after n of its blocks and returns the first half.
func (p *Partition) split(s *segment, n int) *segment {
	c := p.c
	upper := p.replacement(s, s.blocks[:n:n], c.newStem())
	lower := p.replacement(s, s.blocks[n:], s.end)
	lower.up = upper.end
	lower.edge = edgeHash(c, lower.up, []byte(lower.blocks[0].key))
	c.bytes.Add(p.edges.put(lower))
	p.takeOver(s, upper)
	lower.link()
	for _, b := range s.blocks {
		b.leave(s)
	}
	for _, b := range upper.blocks {
		b.enter(upper)
	}
	for _, b := range lower.blocks {
		b.enter(lower)
	}
	s.queue.insert(lower, s)
	s.queue.insert(upper, s)
	s.queue.remove(s)
	s.bury(c)
	return upper
}

// replacement is a segment that begins where s does, with other blocks.
func (p *Partition) replacement(s *segment, blocks []*block, end *stem) *segment {
	t := &segment{up: s.up, edge: s.edge, end: end, part: p, space: s.space}
	t.setBlocks(blocks)
	t.uses.Store(s.uses.Load())
	p.c.bytes.Add(t.size)
	return t
}

// takeOver puts t in the place of s in the table and among its siblings.
func (p *Partition) takeOver(s, t *segment) {
	p.edges.swap(s, t)
	s.unlink()
	t.link()
}

// cut splits a segment where a request ended or left, unless it has changed meanwhile.
func (p *Partition) cut(s *segment, n int) {
	if !s.dead.Load() && n < len(s.blocks) {
		p.split(s, n)
	}
}

// link and unlink keep the list of the segments that begin at a stem.
func (s *segment) link() {
	s.prev, s.next = nil, s.up.first
	if s.next != nil {
		s.next.prev = s
	}
	s.up.first = s
}

func (s *segment) unlink() {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		s.up.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}
