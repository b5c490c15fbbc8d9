package replay

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCacheEvictsTheEndOfTheOldestChainFirst(t *testing.T) {
	c := NewCache(4)
	require.Equal(t, Delta{Stored: 2}, c.Serve([]uint64{1, 2}))
	require.Equal(t, Delta{Stored: 2}, c.Serve([]uint64{11, 12}))
	require.Equal(t, Delta{Reused: 2, Stored: 1, Evicted: []uint64{12}}, c.Serve([]uint64{1, 2, 3}))
	require.Equal(t, Delta{Reused: 1, Stored: 1, Evicted: []uint64{3}}, c.Serve([]uint64{11, 14}))
}

func TestCacheKeepsTheStartOfAChainLongerThanItself(t *testing.T) {
	c := NewCache(3)
	c.Serve([]uint64{9})
	require.Equal(t, Delta{Stored: 3, Evicted: []uint64{9}}, c.Serve([]uint64{1, 2, 3, 4, 5}))
	require.Equal(t, Delta{Reused: 3}, c.Serve([]uint64{1, 2, 3, 4, 5}))
	require.Equal(t, 3, c.Len())
}

func TestCacheDoesNotReuseABlockWhoseParentIsNotThere(t *testing.T) {
	c := NewCache(8)
	c.Serve([]uint64{2, 3}) // not what a trace does: block 2 has no parent here
	require.Equal(t, Delta{Stored: 3}, c.Serve([]uint64{1, 2, 3}))
}

func TestUnboundedCacheNeverEvicts(t *testing.T) {
	c := NewCache(0)
	for i := range uint64(10_000) {
		require.Empty(t, c.Serve([]uint64{0, i + 1}).Evicted)
	}
	require.Equal(t, 10_001, c.Len())
}

// A slow model: a list of blocks, newest first.
type listCache struct {
	capacity int
	blocks   []uint64
}

func (l *listCache) serve(chain []uint64) Delta {
	var d Delta
	for d.Reused < len(chain) && slices.Contains(l.blocks, chain[d.Reused]) {
		d.Reused++
	}
	kept := chain[:min(len(chain), l.capacity)]
	d.Stored = len(kept) - d.Reused
	l.blocks = slices.DeleteFunc(l.blocks, func(id uint64) bool { return slices.Contains(kept, id) })
	l.blocks = append(slices.Clone(kept), l.blocks...)
	for len(l.blocks) > l.capacity {
		d.Evicted = append(d.Evicted, l.blocks[len(l.blocks)-1])
		l.blocks = l.blocks[:len(l.blocks)-1]
	}
	return d
}

// drawChain walks down a small tree: id*3+1 … id*3+3 are the children of id.
func drawChain(t *rapid.T) []uint64 {
	chain := []uint64{0}
	for range rapid.IntRange(0, 5).Draw(t, "depth") {
		chain = append(chain, chain[len(chain)-1]*3+uint64(rapid.IntRange(1, 3).Draw(t, "child")))
	}
	return chain
}

func TestCacheAgreesWithAPlainListAndNoBlockOutlivesItsParent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		cache, model := NewCache(capacity), &listCache{capacity: capacity}
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			chain := drawChain(t)
			require.Equal(t, model.serve(chain), cache.Serve(chain))
			require.Equal(t, len(model.blocks), cache.Len())
			for _, id := range model.blocks {
				require.True(t, cache.Contains(id))
				require.True(t, id == 0 || cache.Contains((id-1)/3), "block %d without its parent", id)
			}
		}
	})
}
