package ranking_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
)

func upTo(n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i + 1)
	}
	return tokens
}

func TestGoldenBlockHashesToTheContractsValue(t *testing.T) {
	got := ranking.AppendFingerprints(nil, nil, upTo(16), 16)
	require.Equal(t, "ea06fc71a5ee6e88", hex.EncodeToString(got))
	require.Equal(t, uint64(0xea06fc71a5ee6e88), ranking.ContentHash(upTo(16)))
}

func TestFingerprintsDropWhatIsShortOfABlock(t *testing.T) {
	for _, tc := range []struct{ tokens, blockSize, blocks int }{
		{0, 16, 0}, {15, 16, 0}, {16, 16, 1}, {31, 16, 1}, {32, 16, 2},
		{5, 1, 5}, {600, 300, 2}, {16, 0, 0}, {16, -1, 0},
	} {
		got := ranking.AppendFingerprints(nil, nil, upTo(tc.tokens), tc.blockSize)
		require.Len(t, got, tc.blocks*ranking.FingerprintBytes, "%+v", tc)
	}
}

// obviousFingerprints is the contract's text, word by word.
func obviousFingerprints(parent *uint64, tokens []uint32, blockSize int) [][]byte {
	var out [][]byte
	for i := 0; (i+1)*blockSize <= len(tokens); i++ {
		var content []byte
		for _, id := range tokens[i*blockSize : (i+1)*blockSize] {
			content = binary.LittleEndian.AppendUint32(content, id)
		}
		prefix := xxh3.HashSeed(content, 1337)
		if parent != nil {
			chained := binary.LittleEndian.AppendUint64(nil, *parent)
			prefix = xxh3.HashSeed(binary.LittleEndian.AppendUint64(chained, prefix), 1337)
		}
		parent = &prefix
		out = append(out, binary.BigEndian.AppendUint64(nil, prefix))
	}
	return out
}

func checkFingerprints(t *rapid.T) {
	tokens := rapid.SliceOfN(rapid.Uint32(), 0, 700).Draw(t, "tokens")
	blockSize := rapid.SampledFrom([]int{1, 3, 16, 64, 256, 257, 300}).Draw(t, "block size")
	var parent *uint64
	if rapid.Bool().Draw(t, "suffix") {
		p := rapid.Uint64().Draw(t, "parent")
		parent = &p
	}
	var want []byte
	for _, b := range obviousFingerprints(parent, tokens, blockSize) {
		want = append(want, b...)
	}
	got := ranking.AppendFingerprints([]byte("kept"), parent, tokens, blockSize)
	require.Equal(t, "kept"+string(want), string(got))

	// A suffix continues where its parent ended.
	if cut := rapid.IntRange(0, len(tokens)/blockSize).Draw(t, "cut"); cut > 0 {
		head := ranking.AppendFingerprints(nil, parent, tokens[:cut*blockSize], blockSize)
		last := binary.BigEndian.Uint64(head[len(head)-ranking.FingerprintBytes:])
		require.Equal(t, want, ranking.AppendFingerprints(head, &last, tokens[cut*blockSize:], blockSize))
	}
}

func TestFingerprintsFollowTheContractsText(t *testing.T) { rapid.Check(t, checkFingerprints) }
func FuzzFingerprints(f *testing.F)                       { f.Fuzz(rapid.MakeFuzz(checkFingerprints)) }

func TestFingerprintsOfACapturedEventAreOneChain(t *testing.T) {
	event := struct {
		TokenIDs    []uint32 `json:"token_ids"`
		BlockHashes []uint64 `json:"block_hashes"`
		BlockSize   int      `json:"block_size"`
	}{TokenIDs: upTo(400), BlockHashes: make([]uint64, 25), BlockSize: 16}
	if dir := os.Getenv("LOOKUPTIER_DATA"); dir != "" {
		data, err := os.ReadFile(filepath.Join(dir, "kv_event_base.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &event))
	}
	got := ranking.AppendFingerprints(nil, nil, event.TokenIDs, event.BlockSize)
	require.Len(t, got, len(event.BlockHashes)*ranking.FingerprintBytes)
	seen := map[string]bool{}
	for i, b := range obviousFingerprints(nil, event.TokenIDs, event.BlockSize) {
		require.Equal(t, b, got[i*8:i*8+8])
		seen[string(b)] = true
	}
	require.Len(t, seen, len(event.BlockHashes), "each block of a chain has its own fingerprint")
}

func TestFingerprintsAllocateNothing(t *testing.T) {
	tokens, dst := upTo(4096), make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() { ranking.AppendFingerprints(dst, nil, tokens, 16) }))
}
