package ranking

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// affinitySeat is the seat, of n, that the lookup's seed falls on; false when
// there is no seed or no seat. The seed of a chain is each hash after its length
// in 4 bytes big-endian, so that "ab","cd" and "abcd" differ; else it is the
// bytes of the exact hash.
func affinitySeat(in *Input, n int) (int, bool) {
	if n == 0 || len(in.Hashes) == 0 {
		return 0, false
	}
	var first8 uint64
	if in.Exact {
		if len(in.Hashes[0]) == 0 {
			return 0, false
		}
		sum := sha256.Sum256(in.Hashes[0])
		first8 = binary.BigEndian.Uint64(sum[:8])
	} else {
		if len(in.Tokens) != len(in.Hashes) {
			return 0, false
		}
		s := seeders.Get().(*seeder)
		first8 = s.chain(in.Hashes)
		seeders.Put(s)
	}
	return int(first8 % uint64(n)), true
}

// seeder digests a chain. Hashes are gathered in buf and fed to SHA-256 in large
// pieces: a call per 8-byte hash would cost more than the digest.
type seeder struct {
	digest hash.Hash
	buf    [4096]byte
	sum    [sha256.Size]byte
}

var seeders = sync.Pool{New: func() any { return &seeder{digest: sha256.New()} }}

func (s *seeder) chain(hashes [][]byte) uint64 {
	s.digest.Reset()
	buf := s.buf[:0]
	for _, h := range hashes {
		if len(buf)+4+len(h) > len(s.buf) {
			s.digest.Write(buf)
			buf = s.buf[:0]
		}
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(h)))
		if 4+len(h) > len(s.buf) { // no buffer for it: straight through
			s.digest.Write(buf)
			s.digest.Write(h)
			buf = s.buf[:0]
			continue
		}
		buf = append(buf, h...)
	}
	s.digest.Write(buf)
	return binary.BigEndian.Uint64(s.digest.Sum(s.sum[:0]))
}
