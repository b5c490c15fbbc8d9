package ranking

import "math/bits"

// NumberRun is a Run by replica number, before the number is resolved to a
// replica; its fields mean the same.
type NumberRun struct {
	Replica uint32
	Tokens  int64
	SeenMS  int64
	Tier    Tier
	Blocks  int
}

// Walk follows a chain block by block and keeps, for every replica that holds
// the first block, its leading run. The zero value works after Reset; a Walk is
// meant to be reused, and then allocates nothing. It is not safe for concurrent use.
type Walk struct {
	cutoffMS int64
	blocks   uint32
	tokens   int64   // sum of the request's counts so far
	sums     []int64 // tokens after each block
	tracks   []track // one per replica of block 0, in the order met
	seats    []uint32
	shift    uint8
	runs     []NumberRun
}

// track is one replica's run: it goes on exactly while blocks equals the walk's,
// so a replica that missed a block never counts again, however long the walk.
type track struct {
	seenMS  int64
	replica uint32
	blocks  uint32
	tier    Tier
}

// scanLimit is up to how many replicas a linear search beats the table.
const scanLimit = 8

// Reset starts a new walk. A hold is fresh if it was last seen after cutoffMS,
// which is now − TTL.
func (w *Walk) Reset(cutoffMS int64) {
	w.cutoffMS = cutoffMS
	w.blocks, w.tokens = 0, 0
	w.sums, w.tracks = w.sums[:0], w.tracks[:0]
}

// Step takes the holds of the next block, for which the request counts tokens,
// and returns how many replicas hold all blocks so far. At 0 the walk is over:
// further steps change nothing. Of two fresh holds of one replica the first counts.
func (w *Walk) Step(holds []Hold, tokens int32) (alive int) {
	if w.blocks == 0 {
		alive = w.first(holds)
	} else {
		alive = w.next(holds)
	}
	w.blocks++
	w.tokens += int64(tokens)
	w.sums = append(w.sums, w.tokens)
	return alive
}

// first lets in every fresh holder of block 0.
func (w *Walk) first(holds []Hold) int {
	w.seat(len(holds))
	for i := range holds {
		h := &holds[i]
		if h.SeenMS <= w.cutoffMS || w.find(h.Replica) >= 0 {
			continue
		}
		w.tracks = append(w.tracks, track{seenMS: h.SeenMS, replica: h.Replica, blocks: 1, tier: h.Tier})
		w.sit(h.Replica)
	}
	return len(w.tracks)
}

// next extends the runs of those that were in so far and hold this block too.
func (w *Walk) next(holds []Hold) (alive int) {
	tracks, blocks, cutoffMS := w.tracks, w.blocks, w.cutoffMS
	// Blocks of one chain mostly list their holders in the same order, so the
	// track after the last one found is tried before a search.
	at := 0
	for i := range holds {
		h := &holds[i]
		if at >= len(tracks) || tracks[at].replica != h.Replica {
			found := w.find(h.Replica)
			if found < 0 {
				continue
			}
			at = found
		}
		t := &tracks[at]
		at++
		if t.blocks != blocks || h.SeenMS <= cutoffMS {
			continue
		}
		t.blocks = blocks + 1
		alive++
		// Mostly no change: a compare is cheaper than a store.
		if h.SeenMS < t.seenMS {
			t.seenMS = h.SeenMS
		}
		if h.Tier > t.tier {
			t.tier = h.Tier
		}
	}
	return alive
}

// Runs are the leading runs found so far, one per replica that was in at block
// 0, in no particular order. The slice is valid until the next Reset or Runs.
func (w *Walk) Runs() []NumberRun {
	w.runs = w.runs[:0]
	for i := range w.tracks {
		t := &w.tracks[i]
		w.runs = append(w.runs, NumberRun{
			Replica: t.replica,
			Tokens:  w.sums[t.blocks-1],
			SeenMS:  t.seenMS,
			Tier:    t.tier,
			Blocks:  int(t.blocks),
		})
	}
	return w.runs
}

// The seats are an open-addressing table from replica number to track, used
// above scanLimit replicas; entries are track index + 1.

// seat clears the table for up to n replicas.
func (w *Walk) seat(n int) {
	w.seats = w.seats[:0]
	if n <= scanLimit {
		return
	}
	size := 1 << bits.Len(uint(2*n-1)) // at most half full
	if cap(w.seats) < size {
		w.seats = make([]uint32, size)
	} else {
		w.seats = w.seats[:size]
		clear(w.seats)
	}
	w.shift = uint8(32 - bits.TrailingZeros(uint(size)))
}

// sit enters the last track.
func (w *Walk) sit(replica uint32) {
	if len(w.seats) == 0 {
		return
	}
	mask := uint32(len(w.seats) - 1)
	i := w.hash(replica)
	for w.seats[i] != 0 {
		i = (i + 1) & mask
	}
	w.seats[i] = uint32(len(w.tracks))
}

// find returns the index of a replica's track, -1 if it was not in at block 0.
func (w *Walk) find(replica uint32) int {
	if len(w.seats) == 0 {
		for i := range w.tracks {
			if w.tracks[i].replica == replica {
				return i
			}
		}
		return -1
	}
	mask := uint32(len(w.seats) - 1)
	for i := w.hash(replica); w.seats[i] != 0; i = (i + 1) & mask {
		if at := int(w.seats[i] - 1); w.tracks[at].replica == replica {
			return at
		}
	}
	return -1
}

// hash spreads replica numbers, which are mostly small and dense.
func (w *Walk) hash(replica uint32) uint32 { return replica * 0x9E3779B1 >> w.shift }

// ExactRuns appends to dst one run for each fresh hold of one block, with the
// hold's own token count, and returns it. Of two fresh holds of one replica it
// keeps both: records of one block have distinct replicas.
func ExactRuns(holds []Hold, cutoffMS int64, dst []NumberRun) []NumberRun {
	for i := range holds {
		h := &holds[i]
		if h.SeenMS <= cutoffMS {
			continue
		}
		dst = append(dst, NumberRun{
			Replica: h.Replica, Tokens: int64(h.Tokens), SeenMS: h.SeenMS, Tier: h.Tier, Blocks: 1,
		})
	}
	return dst
}
