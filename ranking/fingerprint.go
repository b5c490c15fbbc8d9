package ranking

// HashSeed is the XXH3 seed of every fingerprint.
const HashSeed = 1337

// FingerprintBytes is the size of one fingerprint on the wire.
const FingerprintBytes = 8

// ContentHash hashes one block's token ids, little-endian.
func ContentHash(tokens []uint32) uint64 { return 0 }

// PrefixHash continues parent, the prefix hash of the block before, with a
// block's content hash. The prefix hash of a root block is its content hash.
func PrefixHash(parent, content uint64) uint64 { return 0 }

// AppendFingerprints appends to dst the prefix hash of each full block of
// tokens, 8 bytes big-endian each; tokens short of a block are dropped. parent
// is the prefix hash of the block before, nil at the root.
func AppendFingerprints(dst []byte, parent *uint64, tokens []uint32, blockSize int) []byte { return dst }
