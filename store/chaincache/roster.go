package chaincache

import (
	"math/bits"

	"inferencecache.io/lookuptier/ranking"
)

// Roster is the serving set of one domain and the replica numbers that are alive
// in it. A hold under any other number is dead. It is immutable.
type Roster struct {
	// Replicas is the serving set, sorted by id.
	Replicas []ranking.Replica
	seats    []seat
	shift    uint8
}

type seat struct {
	number uint32
	index  int32 // into Replicas, plus 1; 0 = empty
}

// NewRoster makes the roster of replicas, of which the i-th has numbers[i].
func NewRoster(replicas []ranking.Replica, numbers []uint32) *Roster {
	size := 1 << bits.Len(uint(2*len(numbers)))
	r := &Roster{
		Replicas: replicas,
		seats:    make([]seat, size),
		shift:    uint8(32 - bits.TrailingZeros(uint(size))),
	}
	for i, n := range numbers {
		at := r.home(n)
		for r.seats[at].index != 0 {
			at = (at + 1) & uint32(size-1)
		}
		r.seats[at] = seat{number: n, index: int32(i + 1)}
	}
	return r
}

// Find is the index in Replicas of the replica that has the number; −1 if none
// has. The roster of a domain that nothing serves may be nil.
func (r *Roster) Find(number uint32) int {
	if r == nil {
		return -1
	}
	mask := uint32(len(r.seats) - 1)
	for at := r.home(number); ; at = (at + 1) & mask {
		switch s := r.seats[at]; {
		case s.index == 0:
			return -1
		case s.number == number:
			return int(s.index - 1)
		}
	}
}

// home spreads numbers, which are mostly small and dense.
func (r *Roster) home(number uint32) uint32 { return number * 0x9E3779B1 >> r.shift }
