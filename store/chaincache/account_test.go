package chaincache

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bound of the memory is worth what the account is: it is near what the runtime says.
func TestTheAccountIsNearTheRuntimes(t *testing.T) {
	for _, s := range []shape{
		{"one holder", 256, 8, 1, 256, 8},
		{"eight holders", 256, 8, 8, 256, 8},
		{"a hundred holders", 256, 100, 100, 256, 8},
		{"hashes of 128 bytes", 256, 8, 1, 256, 128},
		{"absent blocks alone", 1, 8, 0, 1, 8},
	} {
		chains := 40_000 / s.blocks / max(1, s.holders/8)
		var walks []*Walked
		for i := range chains {
			hashes, _ := chainOf(uint64(i), s.blocks, s.width)
			walks = append(walks, s.walked(hashes))
		}
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		c := newTestCache(t, 1<<32)
		fixed := int64(4 * len(c.departed))
		p := c.NewPartition(Position{})
		r := p.Read()
		for _, w := range walks {
			require.NoError(t, r.Fill(w))
		}
		var a Answer
		for _, w := range walks {
			p.Lookup(&Query{Space: benchSpace, Hashes: w.Hashes, Tokens: make([]int32, len(w.Hashes))}, &a)
		}
		r.End()
		actual := heap() - before - fixed
		account := c.bytes.Load()
		t.Logf("%-20s %d B/block by the account, %d by the runtime", s.name, account/c.blocks.Load(), actual/c.blocks.Load())
		require.InDelta(t, 1, float64(account)/float64(actual), 0.25)
		runtime.KeepAlive(walks)
		p.Close()
	}
}
