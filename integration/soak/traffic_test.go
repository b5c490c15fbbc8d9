package soak

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/replay"
)

const (
	tenant, model, scheme = "t", "m", "vllm"

	engineBlock = 16 // tokens in a block
	// traceBlock only sets how many blocks a generated prompt has: some dozens.
	traceBlock = 64
)

// prompt is one request as engines see it and as gateways ask for it.
type prompt struct {
	ids    []uint64 // names of its blocks
	tokens []uint32
	hashes [][]byte
}

// fingerprint is what the index should call a block.
type fingerprint struct {
	hash   string
	tokens uint32 // the running sum
}

// world is all prompts that there are; engines and gateways draw from the same, so that
// engines share prefixes and the working set has an end.
type world struct {
	prompts []prompt
	blocks  map[uint64]fingerprint
}

func newWorld(t testing.TB, requests int, seed uint64) *world {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, replay.Generate(&text, replay.GenerateOptions{Requests: requests, BlockTokens: traceBlock, Seed: seed}))
	read, err := replay.NewReader(&text, "generated", traceBlock).ReadAll(0)
	require.NoError(t, err)
	w := &world{blocks: map[uint64]fingerprint{}}
	for i := range read {
		p := prompt{ids: read[i].Blocks}
		for _, id := range p.ids {
			for n := range uint64(engineBlock) {
				p.tokens = append(p.tokens, uint32(id)*2_654_435_761+uint32(n))
			}
		}
		fps := ranking.AppendFingerprints(nil, nil, p.tokens, engineBlock)
		for n, id := range p.ids {
			h := fps[n*ranking.FingerprintBytes : (n+1)*ranking.FingerprintBytes]
			p.hashes = append(p.hashes, h)
			w.blocks[id] = fingerprint{hash: string(h), tokens: uint32(engineBlock * (n + 1))}
		}
		w.prompts = append(w.prompts, p)
	}
	return w
}

// producer is an engine with a cache, however that gets into the index.
type producer interface {
	name() string
	// holds lists the blocks that are in the cache now.
	holds(w *world) map[string]uint32
}

func held(w *world, c *replay.Cache) map[string]uint32 {
	out := map[string]uint32{}
	for id, fp := range w.blocks {
		if c.Contains(id) {
			out[fp.hash] = fp.tokens
		}
	}
	return out
}
