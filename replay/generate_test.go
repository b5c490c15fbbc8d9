package replay

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func generated(t *testing.T, o GenerateOptions) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Generate(&out, o))
	return out.Bytes()
}

func TestGeneratedTracesReadBackAndShareTheirPrefixes(t *testing.T) {
	for _, o := range []GenerateOptions{
		{Requests: 1, BlockTokens: 512},
		{Requests: 2000, BlockTokens: 512, Seed: 1},
		{Requests: 30, BlockTokens: 1, Seed: 2},
		{Requests: 500, BlockTokens: 16, Seed: 3},
	} {
		requests, err := NewReader(bytes.NewReader(generated(t, o)), "generated", o.BlockTokens).ReadAll(0)
		require.NoError(t, err)
		require.Len(t, requests, o.Requests)
	}
}

func TestTheBundledTraceIsWhatTheGeneratorMakes(t *testing.T) {
	bundled, err := os.ReadFile("../examples/traces/sample.jsonl")
	require.NoError(t, err)
	require.True(t, bytes.Equal(bundled, generated(t, GenerateOptions{Requests: 600, BlockTokens: 512, Seed: 1})),
		"examples/traces/sample.jsonl is stale: lookupctl gen-trace > examples/traces/sample.jsonl")
}
