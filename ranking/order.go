package ranking

import (
	"math"
	"slices"
	"sync"
)

// order sorts the candidates of one lookup; it is room that lookups reuse.
//
// In a large fleet every replica holds the system prompt, so that every chat
// lookup matches all of them. Candidates are large to move and their ids dear to
// compare: plain numbers are sorted in their place.
type order struct {
	keys   []uint64
	tokens []int32
	cands  []Candidate
}

var orders = sync.Pool{New: func() any { return new(order) }}

// byReplica yields the runs in the order of their replicas' ids, which is that
// of the serving set: the lower half of each value is the index of a run. It is
// valid until the next use of o.
func (o *order) byReplica(runs []Run) []uint64 {
	o.keys = o.keys[:0]
	for i := range runs {
		// A replica of the serving set fits; the order of others does not matter.
		o.keys = append(o.keys, uint64(uint32(runs[i].Replica))<<32|uint64(uint32(i)))
	}
	slices.Sort(o.keys)
	return o.keys
}

// bestFirst sorts candidates that stand in the order of their ids by score, the
// best first and ties by id. Scores are finite and not below 0.
func (o *order) bestFirst(cands []Candidate) {
	o.keys, o.cands = o.keys[:0], append(o.cands[:0], cands...)
	for i := range cands {
		// The bits of such floats are ordered as the floats are.
		o.keys = append(o.keys, uint64(^math.Float32bits(cands[i].Score))<<32|uint64(uint32(i)))
	}
	slices.Sort(o.keys)
	for i, key := range o.keys {
		cands[i] = o.cands[uint32(key)]
	}
	clear(o.cands) // names of replicas that are gone must not live on here
}
