package chaincache

import (
	"cmp"
	"slices"
	"sort"

	"inferencecache.io/lookuptier/ranking"
)

// hold is a ranking.Hold in 16 bytes.
type hold struct {
	seenMS int64
	number uint32
	// tierTokens is the tier above 24 bits of tokens.
	tierTokens uint32
}

const maxTokens = 1<<24 - 1

func packHold(number uint32, seenMS int64, tier ranking.Tier, tokens int32) hold {
	return hold{
		seenMS:     seenMS,
		number:     number,
		tierTokens: uint32(tier)<<24 | uint32(min(max(tokens, 0), maxTokens)),
	}
}

func (h hold) tier() ranking.Tier { return ranking.Tier(h.tierTokens >> 24) }
func (h hold) tokens() int32      { return int32(h.tierTokens & maxTokens) }

// holdSet is all that is known of one block: its holds by ascending number, one a
// number. It is immutable. An absent block has none.
type holdSet struct{ list []hold }

var nobody = &holdSet{}

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
	if len(from) == 0 {
		return nobody
	}
	list := make([]hold, len(from))
	for i, h := range from {
		list[i] = packHold(h.Replica, h.SeenMS, h.Tier, h.Tokens)
	}
	byNumber := func(a, b hold) int { return cmp.Compare(a.number, b.number) }
	if !slices.IsSortedFunc(list, byNumber) {
		slices.SortStableFunc(list, byNumber)
	}
	list = slices.CompactFunc(list, func(a, b hold) bool { return a.number == b.number })
	return &holdSet{list: list}
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

// with is the set after h was reported.
func (s *holdSet) with(h hold) *holdSet {
	i, has := s.find(h.number)
	n := len(s.list)
	if !has {
		n++
	}
	list := make([]hold, n)
	copy(list, s.list[:i])
	list[i] = h
	if has {
		copy(list[i+1:], s.list[i+1:])
	} else {
		copy(list[i+1:], s.list[i:])
	}
	return &holdSet{list: list}
}

// without is the set after number was evicted; s itself if it holds nothing.
func (s *holdSet) without(number uint32) *holdSet {
	i, has := s.find(number)
	if !has {
		return s
	}
	if len(s.list) == 1 {
		return nobody
	}
	list := make([]hold, 0, len(s.list)-1)
	list = append(list, s.list[:i]...)
	return &holdSet{list: append(list, s.list[i+1:]...)}
}

func (s *holdSet) has(number uint32) bool {
	_, has := s.find(number)
	return has
}
