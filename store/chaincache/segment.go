package chaincache

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// maxSegment bounds the blocks of a segment, and so the work that a change to one
// of them causes.
const maxSegment = 256

// stem is a place between segments: what may follow a run of blocks. Its identity
// survives the splitting of the segment that ends in it.
type stem struct {
	id    uint64
	first *segment // of the segments that begin here; the writers' only
}

// segment is a run of blocks that chains had in common when they were asked for.
type segment struct {
	// Immutable.
	up, end *stem
	edge    uint64 // hash of (up, first block): the key in the table of segments
	blocks  []*block
	words   []uint64 // the hashes, if all are 8 bytes
	bytes   string   // else the hashes one after another
	ends    []uint32 // and where each ends, unless all have the width
	width   int

	// version counts changes to the blocks; a digest of another version is void.
	version atomic.Uint64
	digest  atomic.Pointer[digest]
	// uses counts lookups since the queue last looked, up to maxUses.
	uses atomic.Uint32
	dead atomic.Bool

	// The writers' only.
	part         *Partition
	space        *space
	queue        *queue
	older, newer *segment // in the queue
	prev, next   *segment // siblings under up
	size         int64
}

var segmentBytes = int64(unsafe.Sizeof(segment{})+unsafe.Sizeof(stem{})) + 2*slotBytes

// setBlocks lays the hashes of the blocks side by side.
func (s *segment) setBlocks(blocks []*block) {
	s.blocks = blocks
	s.width = len(blocks[0].key)
	total := 0
	uniform := true
	for _, b := range blocks {
		uniform = uniform && len(b.key) == s.width
		total += len(b.key)
	}
	s.size = segmentBytes + int64(8*len(blocks))
	if uniform && s.width == 8 {
		s.words = make([]uint64, len(blocks))
		for i, b := range blocks {
			s.words[i] = word(b.key)
		}
		s.size += int64(8 * len(blocks))
		return
	}
	all := make([]byte, 0, total)
	if !uniform {
		s.ends = make([]uint32, 0, len(blocks))
	}
	for _, b := range blocks {
		all = append(all, b.key...)
		if !uniform {
			s.ends = append(s.ends, uint32(len(all)))
		}
	}
	s.bytes = string(all)
	s.size += int64(total + 4*len(s.ends))
}

func word(k string) uint64 {
	_ = k[7]
	return uint64(k[0]) | uint64(k[1])<<8 | uint64(k[2])<<16 | uint64(k[3])<<24 |
		uint64(k[4])<<32 | uint64(k[5])<<40 | uint64(k[6])<<48 | uint64(k[7])<<56
}

// match is how many leading blocks of the segment are the leading hashes of chain.
func (s *segment) match(chain [][]byte) int {
	n := min(len(s.blocks), len(chain))
	switch {
	case s.words != nil:
		words, chain := s.words[:n], chain[:n]
		for i, w := range words {
			if h := chain[i]; len(h) != 8 || binary.LittleEndian.Uint64(h) != w {
				return i
			}
		}
	case s.ends == nil:
		at := 0
		for i, h := range chain[:n] {
			if len(h) != s.width || string(h) != s.bytes[at:at+s.width] {
				return i
			}
			at += s.width
		}
	default:
		at := 0
		for i, h := range chain[:n] {
			end := int(s.ends[i])
			if string(h) != s.bytes[at:end] {
				return i
			}
			at = end
		}
	}
	return n
}

// begins tells whether the segment is where chain leads from up.
func (s *segment) begins(up *stem, chain [][]byte) bool {
	return s.up == up && s.match(chain[:1]) == 1
}
