package ranking_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
)

// obviousRuns is the walk without any idea of speed: for each replica of the
// first block, look for it in one block after the other.
func obviousRuns(chain [][]ranking.Hold, tokens []int32, cutoffMS int64) []ranking.NumberRun {
	fresh := func(block []ranking.Hold, replica uint32) (ranking.Hold, bool) {
		for _, h := range block {
			if h.Replica == replica && h.SeenMS > cutoffMS {
				return h, true
			}
		}
		return ranking.Hold{}, false
	}
	runs := map[uint32]ranking.NumberRun{}
	if len(chain) == 0 {
		return nil
	}
	for _, first := range chain[0] {
		run := ranking.NumberRun{Replica: first.Replica, SeenMS: 1 << 62}
		for i, block := range chain {
			h, ok := fresh(block, first.Replica)
			if !ok {
				break
			}
			run.Blocks++
			run.Tokens += int64(tokens[i])
			run.SeenMS = min(run.SeenMS, h.SeenMS)
			run.Tier = max(run.Tier, h.Tier)
		}
		if run.Blocks > 0 {
			runs[first.Replica] = run
		}
	}
	var out []ranking.NumberRun
	for _, r := range runs {
		out = append(out, r)
	}
	return sortedRuns(out)
}

func sortedRuns(runs []ranking.NumberRun) []ranking.NumberRun {
	out := append([]ranking.NumberRun{}, runs...)
	slices.SortFunc(out, func(a, b ranking.NumberRun) int { return cmp.Compare(a.Replica, b.Replica) })
	return out
}

func drawChain(t *rapid.T) (chain [][]ranking.Hold, tokens []int32) {
	// Few numbers make long runs and repetitions; many make the table grow.
	numbers := rapid.SampledFrom([]uint32{2, 8, 9, 40, 1 << 24}).Draw(t, "numbers")
	perBlock := rapid.SampledFrom([]int{3, 12, 60}).Draw(t, "holds per block")
	blocks := rapid.IntRange(0, 12).Draw(t, "blocks")
	hold := rapid.Custom(func(t *rapid.T) ranking.Hold {
		return ranking.Hold{
			Replica: rapid.Uint32Range(0, numbers-1).Draw(t, "replica"),
			SeenMS:  rapid.Int64Range(95, 130).Draw(t, "seen"), // the cutoff is 100
			Tier:    ranking.Tier(rapid.SampledFrom([]int{1, 2, 3, 255}).Draw(t, "tier")),
		}
	})
	for range blocks {
		block := rapid.SliceOfN(hold, 0, perBlock).Draw(t, "block")
		if len(chain) > 0 && rapid.Bool().Draw(t, "like the block before") {
			block = append(slices.Clone(chain[len(chain)-1]), block...)
			block = block[rapid.IntRange(0, min(2, len(block))).Draw(t, "without"):]
		}
		chain = append(chain, block)
		tokens = append(tokens, rapid.Int32Range(0, 64).Draw(t, "tokens"))
	}
	return chain, tokens
}

func checkWalk(t *rapid.T) {
	const cutoff = 100
	var w ranking.Walk
	for range rapid.IntRange(1, 3).Draw(t, "walks") { // one Walk for all: nothing may linger
		chain, tokens := drawChain(t)
		w.Reset(cutoff)
		for i, block := range chain {
			alive, want := w.Step(block, tokens[i]), 0
			for _, r := range obviousRuns(chain[:i+1], tokens, cutoff) {
				if r.Blocks == i+1 {
					want++
				}
			}
			require.Equal(t, want, alive, "alive after block %d", i)
		}
		if got, want := sortedRuns(w.Runs()), obviousRuns(chain, tokens, cutoff); len(want) > 0 || len(got) > 0 {
			require.Equal(t, want, got)
		}
	}
}

func TestWalkFindsTheRunsOfAQuadraticSearch(t *testing.T) { rapid.Check(t, checkWalk) }
func FuzzWalk(f *testing.F)                               { f.Fuzz(rapid.MakeFuzz(checkWalk)) }

func TestWalk(t *testing.T) {
	hold := func(replica uint32, seen int64, tier ranking.Tier) ranking.Hold {
		return ranking.Hold{Replica: replica, SeenMS: seen, Tier: tier, Tokens: 9999}
	}
	for _, tc := range []struct {
		name  string
		chain [][]ranking.Hold
		alive []int
		want  []ranking.NumberRun
	}{
		{
			name:  "nobody holds the first block",
			chain: [][]ranking.Hold{{}, {hold(1, 200, 1)}},
			alive: []int{0, 0},
			want:  []ranking.NumberRun{},
		},
		{
			name:  "a gap ends the run for good",
			chain: [][]ranking.Hold{{hold(1, 200, 1)}, {}, {hold(1, 200, 1)}},
			alive: []int{1, 0, 0},
			want:  []ranking.NumberRun{{Replica: 1, Tokens: 16, SeenMS: 200, Tier: 1, Blocks: 1}},
		},
		{
			name:  "an expired block is a gap",
			chain: [][]ranking.Hold{{hold(1, 200, 1)}, {hold(1, 100, 1)}, {hold(1, 200, 1)}},
			alive: []int{1, 0, 0},
			want:  []ranking.NumberRun{{Replica: 1, Tokens: 16, SeenMS: 200, Tier: 1, Blocks: 1}},
		},
		{
			name:  "an expired first block never lets in",
			chain: [][]ranking.Hold{{hold(1, 100, 1), hold(2, 101, 1)}, {hold(1, 200, 1)}},
			alive: []int{1, 0},
			want:  []ranking.NumberRun{{Replica: 2, Tokens: 16, SeenMS: 101, Tier: 1, Blocks: 1}},
		},
		{
			name:  "the oldest time and the coldest tier of the run count",
			chain: [][]ranking.Hold{{hold(1, 300, 1)}, {hold(1, 150, 3)}, {hold(1, 200, 2)}},
			alive: []int{1, 1, 1},
			want:  []ranking.NumberRun{{Replica: 1, Tokens: 112, SeenMS: 150, Tier: 3, Blocks: 3}},
		},
		{
			name:  "what lies behind the run does not count",
			chain: [][]ranking.Hold{{hold(1, 300, 1), hold(2, 300, 1)}, {hold(2, 300, 1)}, {hold(1, 101, 255), hold(2, 299, 1)}},
			alive: []int{2, 1, 1},
			want: []ranking.NumberRun{
				{Replica: 1, Tokens: 16, SeenMS: 300, Tier: 1, Blocks: 1},
				{Replica: 2, Tokens: 112, SeenMS: 299, Tier: 1, Blocks: 3},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var w ranking.Walk
			w.Reset(100)
			for i, block := range tc.chain {
				require.Equal(t, tc.alive[i], w.Step(block, int32(16<<i)), "alive after block %d", i)
			}
			require.Equal(t, tc.want, sortedRuns(w.Runs()))
		})
	}
}

func TestWalkSumsLongPromptsWithoutOverflow(t *testing.T) {
	var w ranking.Walk
	w.Reset(0)
	for range 4 {
		w.Step([]ranking.Hold{{Replica: 1, SeenMS: 1}}, 1<<31-1)
	}
	require.Equal(t, int64(4*(1<<31-1)), w.Runs()[0].Tokens)
}

func TestExactRunsTakeFreshHoldsWithTheirOwnCount(t *testing.T) {
	holds := []ranking.Hold{
		{Replica: 1, SeenMS: 100, Tier: 1, Tokens: 5},
		{Replica: 2, SeenMS: 101, Tier: 2, Tokens: 7},
		{Replica: 3, SeenMS: 900, Tier: 255, Tokens: 0},
	}
	require.Equal(t, []ranking.NumberRun{
		{Replica: 9},
		{Replica: 2, Tokens: 7, SeenMS: 101, Tier: 2, Blocks: 1},
		{Replica: 3, Tokens: 0, SeenMS: 900, Tier: 255, Blocks: 1},
	}, ranking.ExactRuns(holds, 100, []ranking.NumberRun{{Replica: 9}}))
}

// sharedChain has the same holders in every block; shuffled puts them in another
// order in each, as blocks written by many hands have them.
func sharedChain(blocks, holders int, shuffled bool) [][]ranking.Hold {
	r := rand.New(rand.NewPCG(1, 2))
	chain := make([][]ranking.Hold, blocks)
	for i := range chain {
		for n := range holders {
			chain[i] = append(chain[i], ranking.Hold{Replica: uint32(n * 7), SeenMS: int64(1000 + n), Tier: 1})
		}
		if shuffled {
			r.Shuffle(holders, func(a, b int) { chain[i][a], chain[i][b] = chain[i][b], chain[i][a] })
		}
	}
	return chain
}

func walkAll(w *ranking.Walk, chain [][]ranking.Hold) []ranking.NumberRun {
	w.Reset(100)
	for _, block := range chain {
		if w.Step(block, 16) == 0 {
			break
		}
	}
	return w.Runs()
}

func TestWalkAllocatesNothing(t *testing.T) {
	var w ranking.Walk
	for _, holders := range []int{8, 300} {
		chain := sharedChain(64, holders, true)
		require.Len(t, walkAll(&w, chain), holders)
		require.Zero(t, testing.AllocsPerRun(50, func() { walkAll(&w, chain) }))
	}
}

func BenchmarkWalk(b *testing.B) {
	for _, bc := range []struct {
		name            string
		blocks, holders int
		shuffled        bool
	}{
		{"256x1", 256, 1, false},
		{"256x8", 256, 8, false},
		{"256x8/shuffled", 256, 8, true},
		{"64x128", 64, 128, false},
		{"64x300/shuffled", 64, 300, true},
	} {
		b.Run(bc.name, func(b *testing.B) {
			chain := sharedChain(bc.blocks, bc.holders, bc.shuffled)
			var w ranking.Walk
			b.ReportAllocs()
			for b.Loop() {
				walkAll(&w, chain)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bc.blocks*bc.holders), "ns/hold")
		})
	}
}
