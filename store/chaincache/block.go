package chaincache

import (
	"slices"
	"sync/atomic"

	"inferencecache.io/lookuptier/ranking"
)

// space is one (scheme, adapter) of a partition.
type space struct {
	id   uint64 // unique in the Cache; mixed into the hashes of its blocks
	name ranking.Space
	key  string // what changes call it
	// root is where its chains begin; anywhere is where those blocks stand that
	// follow too many different chains (see maxPlaces).
	root, anywhere *stem
	blocks         int // writer only
}

// block is one prefix key and who holds it.
type block struct {
	key   string // the hash bytes
	space *space
	holds atomic.Pointer[holdSet]
	// home is a segment that the block stands in; more are the others. A block
	// lives as long as a segment has it. more is the writers' only.
	home atomic.Pointer[segment]
	more *[]*segment
}

const (
	blockBytes = 48 + 2*slotBytes // the struct, and its slot in a table half full
	// maxPlaces bounds the segments that a change to one block must find. A block
	// that comes up after more chains than that gets a segment of its own under
	// space.anywhere, and all further chains lead there.
	maxPlaces = 16
)

// enter notes that s has the block.
func (b *block) enter(s *segment) {
	if home := b.home.Load(); home == nil {
		b.home.Store(s)
	} else if home != s {
		if b.more == nil {
			b.more = new([]*segment)
		}
		if slices.Contains(*b.more, s) {
			return
		}
		*b.more = append(*b.more, s)
	}
}

// leave notes that s has the block no longer; true if that was its last place. A
// segment may have a block twice: only the first leave of a segment counts.
func (b *block) leave(s *segment) bool {
	home := b.home.Load()
	if b.more == nil {
		if home != s {
			return false
		}
		b.home.Store(nil)
		return true
	}
	more := *b.more
	last := len(more) - 1
	if home == s {
		b.home.Store(more[last])
	} else if i := slices.Index(more, s); i >= 0 {
		more[i] = more[last]
	} else {
		return false
	}
	more[last] = nil
	if *b.more = more[:last]; last == 0 {
		b.more = nil
	}
	return false
}

func (b *block) places() int {
	n := 0
	if b.home.Load() != nil {
		n++
	}
	if b.more != nil {
		n += len(*b.more)
	}
	return n
}

// dirty makes every digest that the block is part of out of date.
func (b *block) dirty() {
	if home := b.home.Load(); home != nil {
		home.version.Add(1)
	}
	if b.more != nil {
		for _, s := range *b.more {
			s.version.Add(1)
		}
	}
}
