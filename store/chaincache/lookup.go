package chaincache

import (
	"runtime"

	"inferencecache.io/lookuptier/ranking"
)

// Query is one lookup in one partition.
type Query struct {
	ranking.Space
	// Hashes and Tokens as in ranking.Query.
	Hashes [][]byte
	Tokens []int32
	Exact  bool
	// NowMS is the time that Head.Roster is asked with; a hold is fresh if it was
	// seen after CutoffMS.
	NowMS, CutoffMS int64
	// Again: the same lookup looked before, and is looking for what was filled since.
	// It counts neither in the Stats nor as a use of what it finds.
	Again bool
	// Partial: if the index cannot be asked, what is known is better than nothing. A
	// run ends where the partition knows no more, and the answer is complete as soon
	// as there is a head. It counts neither.
	Partial bool
}

// Answer is what a partition knows of a Query. It is reused from lookup to
// lookup, and then costs no allocation.
type Answer struct {
	// Complete: Runs is the whole answer. Otherwise it says nothing, and the index
	// must be asked: for the head if Head is nil, and for the blocks from Known on.
	Complete bool
	// Short: it is complete only because the Query was Partial, and says nothing about
	// the blocks from Known on.
	Short bool
	// Known counts the leading blocks of the query that the partition knows, as far
	// as it looked: it stops where no run goes on.
	Known int
	// Head is the head that the answer goes with; nil if the partition has none.
	Head Head
	// Roster is the head's roster for the query's scheme; nil if nothing serves it.
	Roster *Roster
	// Runs has one entry for each replica that matched; Replica indexes Roster.Replicas.
	Runs []ranking.Run

	alive []runner
	sums  []int64
	cut   *segment // a segment that the query leaves …
	cutAt int      // … after that many blocks, which were gone through one by one
}

// runner is a replica that holds all blocks so far.
type runner struct {
	seenMS int64
	number uint32
	index  int32
	tier   ranking.Tier
}

const (
	// patience is how many looks may meet a change before the lookup waits for the writer.
	patience = 16
	// minCut is the smallest number of blocks that are worth a segment of their own
	// because requests end or leave after them.
	minCut = 8
)

// Lookup answers q from memory, as far as it can, into a.
func (p *Partition) Lookup(q *Query, a *Answer) {
	for try := 0; ; try++ {
		before := p.seq.Load()
		if before&1 == 0 {
			p.look(q, a)
			if p.seq.Load() == before {
				break
			}
		}
		p.c.retries.Add(1)
		if try < patience {
			runtime.Gosched()
			continue
		}
		p.c.mu.Lock()
		p.look(q, a)
		p.c.mu.Unlock()
		break
	}
	switch {
	case q.Again || q.Partial:
		return
	case !a.Complete:
		p.c.misses.Add(1)
		return
	}
	p.c.hits.Add(1)
	if a.cut != nil && p.c.mu.TryLock() {
		p.cut(a.cut, a.cutAt)
		p.c.mu.Unlock()
	}
}

func (p *Partition) look(q *Query, a *Answer) {
	a.Complete, a.Short, a.Known, a.Head, a.Roster = false, false, 0, nil, nil
	a.Runs, a.alive, a.cut = a.Runs[:0], a.alive[:0], nil
	if p.closed.Load() || len(q.Hashes) == 0 || !q.Exact && len(q.Tokens) < len(q.Hashes) {
		return
	}
	head := p.head.Load()
	if head == nil {
		return
	}
	a.Head = head.Head
	a.Roster = head.Roster(q.Scheme, q.NowMS)
	if a.Roster == nil || len(a.Roster.Replicas) == 0 {
		a.Complete = true // whatever the blocks say, nobody alive holds them
		return
	}
	if sp := p.findSpace(q.Space); sp == nil {
		a.leave(q, 0)
	} else if q.Exact {
		p.exact(sp, q, a)
	} else {
		p.chain(sp, q, a)
	}
}

// exact lists the fresh holds of one block, each with its own tokens.
func (p *Partition) exact(sp *space, q *Query, a *Answer) {
	b := p.findBlock(sp, q.Hashes[0])
	if b == nil {
		a.leave(q, 0)
		return
	}
	if home := b.home.Load(); home != nil && !q.Again {
		home.use()
	}
	a.Complete, a.Known = true, 1
	list := b.holds.Load().list
	for i := range list {
		h := &list[i]
		seen := h.seenMS.Load()
		if seen <= q.CutoffMS {
			continue
		}
		if index := a.Roster.Find(h.number); index >= 0 {
			a.Runs = append(a.Runs, ranking.Run{
				Replica: index, Tokens: int64(h.tokens()), SeenMS: seen, Tier: h.tier(), Blocks: 1,
			})
		}
	}
}

// chain follows the tree for as long as somebody holds every block.
func (p *Partition) chain(sp *space, q *Query, a *Answer) {
	hashes := q.Hashes
	at := sp.root
	var tokens int64 // the request's counts of the blocks before a.Known
	for a.Known < len(hashes) {
		rest := hashes[a.Known:]
		s := p.findSegment(sp, at, rest)
		if s == nil {
			a.leave(q, tokens)
			return
		}
		if !q.Again {
			s.use()
		}
		n := s.match(rest)
		counts := q.Tokens[a.Known : a.Known+n]
		step := stepper{s: s, n: n, q: q, a: a, start: a.Known, tokens: tokens, counts: counts}
		if n == len(s.blocks) {
			step.whole(p.c)
		} else {
			step.blocks()
			if n >= minCut {
				a.cut, a.cutAt = s, n
			}
		}
		if len(a.alive) == 0 {
			a.Complete = true
			a.Known += n
			return
		}
		a.Known += n
		for _, c := range counts {
			tokens += int64(c)
		}
		if n < len(s.blocks) && a.Known < len(hashes) {
			a.leave(q, tokens) // the segment, for blocks that are not known
			return
		}
		at = s.end
	}
	a.end(tokens)
}

// leave ends an answer where the partition knows no more: short, if q makes do with that.
func (a *Answer) leave(q *Query, tokens int64) {
	if q.Partial {
		a.Short = true
		a.end(tokens)
	}
}

// end completes the answer with the runs of all who are still alive.
func (a *Answer) end(tokens int64) {
	a.Complete = true
	for _, r := range a.alive {
		a.Runs = append(a.Runs, ranking.Run{
			Replica: int(r.index), Tokens: tokens, SeenMS: r.seenMS, Tier: r.tier, Blocks: a.Known,
		})
	}
}

// findSegment is the segment that chain leads to from at.
func (p *Partition) findSegment(sp *space, at *stem, chain [][]byte) *segment {
	if s := p.findEdge(at, chain); s != nil {
		return s
	}
	return p.findEdge(sp.anywhere, chain)
}

func (p *Partition) findEdge(at *stem, chain [][]byte) *segment {
	for c := p.edges.seek(edgeHash(p.c, at, chain[0])); ; {
		s := c.next()
		if s == nil || s.begins(at, chain) {
			return s
		}
	}
}

func (p *Partition) findBlock(sp *space, hash []byte) *block {
	for c := p.blocks.seek(blockHash(p.c, sp, hash)); ; {
		b := c.next()
		if b == nil || b.space == sp && b.key == string(hash) {
			return b
		}
	}
}

func (p *Partition) findSpace(name ranking.Space) *space {
	for c := p.spaces.seek(p.c.spaceHash(name)); ; {
		sp := c.next()
		if sp == nil || sp.name == name {
			return sp
		}
	}
}

// use counts a lookup. Once a segment is hot it writes nothing, so that lookups
// on other cores keep the cache line.
func (s *segment) use() {
	if n := s.uses.Load(); n < maxUses {
		s.uses.Store(n + 1)
	}
}
