package lookupsvc

import "slices"

// chainFields are those of a chain, which lookups and report entries share: either
// a message for each hash, or all hashes in one piece.
type chainFields interface {
	GetBlockHashes() [][]byte
	GetBlockTokenCounts() []int32
	GetPackedBlockHashes() []byte
	GetPackedHashBytes() int32
}

// agreementFlaw tells what makes the chain fields contradict one another; none of
// them at all is no contradiction.
func agreementFlaw(c chainFields) flaw {
	hashes, counts := len(c.GetBlockHashes()), len(c.GetBlockTokenCounts())
	packed, width := len(c.GetPackedBlockHashes()), int(c.GetPackedHashBytes())
	switch {
	case packed == 0 && hashes == counts:
		return flawNone
	case packed == 0:
		return flawUnequalArrays
	case hashes > 0 || width <= 0 || packed%width != 0:
		return flawBadPacking
	case counts != 1 && counts != packed/width:
		return flawUnequalArrays
	default:
		return flawNone
	}
}

// chainFlaw is agreementFlaw and the limits of a chain's hashes.
func chainFlaw(c chainFields) flaw {
	if f := agreementFlaw(c); f != flawNone {
		return f
	}
	blocks, width := len(c.GetBlockHashes()), 0
	if packed := len(c.GetPackedBlockHashes()); packed > 0 {
		width = int(c.GetPackedHashBytes())
		blocks = packed / width
	}
	switch {
	case blocks > MaxChainBlocks:
		return flawChainTooLong
	case width > MaxHashBytes || !hashesWithin(c.GetBlockHashes()):
		return flawHashTooLong
	default:
		return flawNone
	}
}

// hasChain tells whether c is a chain that can be walked, which is what
// requireChain asks for.
func hasChain(c chainFields) bool {
	return len(c.GetBlockTokenCounts()) > 0 && chainAgrees(c)
}

// chainAgrees tells whether the chain fields agree; absent ones do.
func chainAgrees(c chainFields) bool { return agreementFlaw(c) == flawNone }

// appendBlocks appends the hashes of a packed chain without a flaw, as views.
func appendBlocks(dst [][]byte, c chainFields) [][]byte {
	packed, width := c.GetPackedBlockHashes(), int(c.GetPackedHashBytes())
	dst = slices.Grow(dst, len(packed)/width)
	for from := 0; from < len(packed); from += width {
		dst = append(dst, packed[from:from+width:from+width])
	}
	return dst
}

// appendEach appends n times the same count.
func appendEach(dst []int32, count int32, n int) []int32 {
	dst = slices.Grow(dst, n)
	for range n {
		dst = append(dst, count)
	}
	return dst
}
