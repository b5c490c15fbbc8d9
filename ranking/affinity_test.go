package ranking

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func chainOf(hashes ...[]byte) *Input {
	in := &Input{}
	in.Hashes, in.Tokens = hashes, make([]int32, len(hashes))
	return in
}

func exactOf(hash []byte) *Input {
	in := &Input{}
	in.Hashes, in.Exact = [][]byte{hash}, true
	return in
}

// The seats were computed with another SHA-256 in another language.
func TestAffinitySeatOfKnownSeeds(t *testing.T) {
	var long [][]byte
	for i := range 1000 {
		long = append(long, bytes.Repeat([]byte{byte(i)}, i%128))
	}
	for _, tc := range []struct {
		name                 string
		in                   *Input
		of3, of7, ofHundreds int
	}{
		{"exact p", exactOf([]byte("p")), 1, 0, 49},
		{"exact abcd", exactOf([]byte("abcd")), 0, 4, 81},
		{"chain ab,cd", chainOf([]byte("ab"), []byte("cd")), 2, 1, 59},
		{"chain abcd", chainOf([]byte("abcd")), 1, 2, 58},
		{"chain a,bcd", chainOf([]byte("a"), []byte("bcd")), 1, 0, 160},
		{"chain of an empty hash", chainOf(nil), 2, 0, 119},
		{"chain of many buffers", chainOf(long...), 2, 3, 188},
		{"chain of a hash larger than the buffer", chainOf(bytes.Repeat([]byte("x"), 5000), []byte("y")), 2, 6, 293},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n, want := range map[int]int{1: 0, 3: tc.of3, 7: tc.of7, 300: tc.ofHundreds} {
				got, ok := affinitySeat(tc.in, n)
				require.True(t, ok)
				require.Equal(t, want, got, "of %d", n)
			}
		})
	}
}

func TestAffinityNeedsASeedAndASeat(t *testing.T) {
	unequal := chainOf([]byte("a"))
	unequal.Tokens = nil
	for name, in := range map[string]*Input{
		"no hash": {}, "empty chain": chainOf(), "empty exact hash": exactOf(nil), "unequal arrays": unequal,
	} {
		_, ok := affinitySeat(in, 3)
		require.False(t, ok, name)
	}
	_, ok := affinitySeat(exactOf([]byte("p")), 0)
	require.False(t, ok, "nobody serves")
}

func checkAffinity(t *rapid.T) {
	hashes := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 200), 1, 60).Draw(t, "hashes")
	n := rapid.IntRange(1, 300).Draw(t, "serving")
	var seed []byte
	for _, h := range hashes {
		seed = binary.BigEndian.AppendUint32(seed, uint32(len(h)))
		seed = append(seed, h...)
	}
	sum := sha256.Sum256(seed)
	got, ok := affinitySeat(chainOf(hashes...), n)
	require.True(t, ok)
	require.Equal(t, int(binary.BigEndian.Uint64(sum[:8])%uint64(n)), got)
}

func TestAffinitySeedIsLengthPrefixed(t *testing.T) { rapid.Check(t, checkAffinity) }
func FuzzAffinity(f *testing.F)                     { f.Fuzz(rapid.MakeFuzz(checkAffinity)) }

func BenchmarkAffinity(b *testing.B) {
	var hashes [][]byte
	for i := range 256 {
		hashes = append(hashes, binary.BigEndian.AppendUint64(nil, uint64(i)*0x9E3779B97F4A7C15))
	}
	in := chainOf(hashes...)
	b.ReportAllocs()
	for b.Loop() {
		affinitySeat(in, 8)
	}
}
