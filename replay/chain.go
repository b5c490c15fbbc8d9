package replay

import "encoding/binary"

// hashBytes is the length of a block hash on the wire.
const hashBytes = 8

// chain is one prompt as the tier sees it.
type chain struct {
	hashes [][]byte
	counts []int32
}

// chainOf derives the chain of a request: every block is full except perhaps the last.
func chainOf(req *Request, blockTokens int64, seed uint64) chain {
	n := len(req.Blocks)
	c := chain{hashes: make([][]byte, n), counts: make([]int32, n)}
	backing := make([]byte, n*hashBytes)
	left := req.InputTokens
	for i, id := range req.Blocks {
		h := backing[i*hashBytes : (i+1)*hashBytes : (i+1)*hashBytes]
		binary.BigEndian.PutUint64(h, hashOf(id, seed))
		c.hashes[i] = h
		c.counts[i] = int32(min(left, blockTokens))
		left -= blockTokens
	}
	return c
}

// tokens is the number of tokens in the first n blocks.
func (c *chain) tokens(n int) int64 {
	var sum int64
	for _, count := range c.counts[:n] {
		sum += int64(count)
	}
	return sum
}

// hashOf spreads ids over all 64 bits. For one seed it is one to one, so that two
// blocks never share a hash.
func hashOf(id, seed uint64) uint64 { return spread(id ^ spread(seed)) }

// spread is a bijection on 64 bits: xor-shifts and odd multipliers can be undone.
func spread(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return x
}
