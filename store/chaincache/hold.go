package chaincache

import (
	"cmp"
	"slices"
	"sort"
	"sync/atomic"

	"inferencecache.io/lookuptier/ranking"
)

// hold is a ranking.Hold in 16 bytes. Once a lookup can see it, its number stays and
// the rest changes only while the partition's sequence number is odd, so a lookup
// that reads it half changed looks again.
type hold struct {
	seenMS     atomic.Int64
	number     uint32
	tierTokens atomic.Uint32 // the tier above 24 bits of tokens
}

const maxTokens = 1<<24 - 1

func packTail(tier ranking.Tier, tokens int32) uint32 {
	return uint32(tier)<<24 | uint32(min(max(tokens, 0), maxTokens))
}

func (h *hold) set(seenMS int64, tierTokens uint32) {
	h.seenMS.Store(seenMS)
	h.tierTokens.Store(tierTokens)
}

func (h *hold) copy(o *hold) {
	h.number = o.number
	h.set(o.seenMS.Load(), o.tierTokens.Load())
}

func (h *hold) tier() ranking.Tier { return ranking.Tier(h.tierTokens.Load() >> 24) }
func (h *hold) tokens() int32      { return int32(h.tierTokens.Load() & maxTokens) }

// holdSet is all that is known of one block: its holds by ascending number, one a
// number. Which numbers it has never changes. An absent block has none.
type holdSet struct{ list []hold }

var nobody = &holdSet{}

// Small sets lie beside their slice: one allocation instead of two.
type (
	holdSet1 struct {
		holdSet
		room [1]hold
	}
	holdSet2 struct {
		holdSet
		room [2]hold
	}
	holdSet4 struct {
		holdSet
		room [4]hold
	}
	holdSet8 struct {
		holdSet
		room [8]hold
	}
)

func newHoldSet(n int) *holdSet {
	switch {
	case n == 0:
		return nobody
	case n == 1:
		s := new(holdSet1)
		s.list = s.room[:]
		return &s.holdSet
	case n == 2:
		s := new(holdSet2)
		s.list = s.room[:]
		return &s.holdSet
	case n <= 4:
		s := new(holdSet4)
		s.list = s.room[:n]
		return &s.holdSet
	case n <= 8:
		s := new(holdSet8)
		s.list = s.room[:n]
		return &s.holdSet
	default:
		return &holdSet{list: make([]hold, n)}
	}
}

const (
	holdBytes    = 16
	holdSetBytes = 24
)

func (s *holdSet) bytes() int64 {
	if s == nobody {
		return 0
	}
	return holdSetBytes + holdBytes*int64(cap(s.list))
}

// packHolds sorts what a walk read. Of two holds of one number the first counts.
func packHolds(from []ranking.Hold) *holdSet {
	for i := 1; i < len(from); i++ {
		if from[i-1].Replica < from[i].Replica {
			continue
		}
		from = slices.Clone(from)
		slices.SortStableFunc(from, func(a, b ranking.Hold) int { return cmp.Compare(a.Replica, b.Replica) })
		from = slices.CompactFunc(from, func(a, b ranking.Hold) bool { return a.Replica == b.Replica })
		break
	}
	s := newHoldSet(len(from))
	for i, h := range from {
		s.list[i].number = h.Replica
		s.list[i].set(h.SeenMS, packTail(h.Tier, h.Tokens))
	}
	return s
}

// find is where number stands, or would stand.
func (s *holdSet) find(number uint32) (int, bool) {
	list := s.list
	if len(list) <= 8 {
		for i := range list {
			if list[i].number >= number {
				return i, list[i].number == number
			}
		}
		return len(list), false
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].number >= number })
	return i, i < len(list) && list[i].number == number
}

// with is a set like s in which number holds the block as told.
func (s *holdSet) with(number uint32, seenMS int64, tierTokens uint32) *holdSet {
	i, has := s.find(number)
	rest := s.list[i:]
	if has {
		rest = rest[1:]
	}
	t := newHoldSet(i + 1 + len(rest))
	for j := range s.list[:i] {
		t.list[j].copy(&s.list[j])
	}
	t.list[i].number = number
	t.list[i].set(seenMS, tierTokens)
	for j := range rest {
		t.list[i+1+j].copy(&rest[j])
	}
	return t
}

// without is the set after number was evicted; s itself if it holds nothing.
func (s *holdSet) without(number uint32) *holdSet {
	i, has := s.find(number)
	if !has {
		return s
	}
	t := newHoldSet(len(s.list) - 1)
	for j := range t.list {
		from := j
		if j >= i {
			from++
		}
		t.list[j].copy(&s.list[from])
	}
	return t
}
