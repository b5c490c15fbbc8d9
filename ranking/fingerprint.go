package ranking

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// HashSeed is the XXH3-64 seed of every fingerprint. Producers and lookups must
// agree on it, so it is part of the contract and no option.
const HashSeed = 1337

// FingerprintBytes is the size of one fingerprint on the wire: a prefix hash, big-endian.
const FingerprintBytes = 8

// stackBlock is the largest block, in tokens, that is hashed without a buffer
// from the heap. Engines use 1 to 256.
const stackBlock = 256

// ContentHash hashes one block's token ids, each as 4 bytes little-endian.
func ContentHash(tokens []uint32) uint64 {
	var stack [4 * stackBlock]byte
	buf := stack[:]
	if len(tokens) > stackBlock {
		buf = make([]byte, 4*len(tokens))
	}
	return contentHash(buf, tokens)
}

// contentHash is ContentHash with a buffer of at least 4 bytes a token.
func contentHash(buf []byte, tokens []uint32) uint64 {
	buf = buf[:4*len(tokens)]
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(buf[4*i:], t)
	}
	return xxh3.HashSeed(buf, HashSeed)
}

// PrefixHash continues parent, the prefix hash of the block before, with a
// block's content hash. The prefix hash of a root block is its content hash.
func PrefixHash(parent, content uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], parent)
	binary.LittleEndian.PutUint64(buf[8:], content)
	return xxh3.HashSeed(buf[:], HashSeed)
}

// AppendFingerprints appends to dst the prefix hash of each full block of
// tokens, FingerprintBytes each, and returns it. Tokens short of a block are
// dropped; a blockSize below 1 yields nothing. parent is the prefix hash of the
// block before the first, nil at the root.
func AppendFingerprints(dst []byte, parent *uint64, tokens []uint32, blockSize int) []byte {
	if blockSize < 1 || len(tokens) < blockSize {
		return dst
	}
	var stack [4 * stackBlock]byte
	buf := stack[:]
	if blockSize > stackBlock {
		buf = make([]byte, 4*blockSize)
	}
	var prefix uint64
	root := parent == nil
	if !root {
		prefix = *parent
	}
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		content := contentHash(buf, tokens[:blockSize])
		if root {
			prefix, root = content, false
		} else {
			prefix = PrefixHash(prefix, content)
		}
		dst = binary.BigEndian.AppendUint64(dst, prefix)
	}
	return dst
}
