package chaincache

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/cputime"
)

// BenchmarkGuard fails if a hot lookup is not at least eight times as fast as the
// obvious index, by processor time in the same run. The best of five rounds counts: noise
// only ever makes things slower.
func BenchmarkGuard(b *testing.B) {
	const floor, rounds = 8, 5
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			p := s.filled(b, 1)
			q := s.query(0)
			var x obviousIndex
			for n := range s.holders {
				x.report(benchSpace, fmt.Sprintf("engine-%03d", n), int64(1000+n), q.Hashes)
			}
			var a Answer
			best := 0.0
			for range rounds {
				obvious := cputime.OfCall(b, 20*time.Millisecond, func() { x.lookup(benchSpace, q.Hashes, q.Tokens, 0) })
				tree := cputime.OfCall(b, 20*time.Millisecond, func() { p.Lookup(q, &a) })
				best = max(best, obvious/tree)
			}
			require.Len(b, a.Runs, s.holders)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(best, "x-obvious")
			if best < floor {
				b.Errorf("a hot lookup is %.1f times as fast as the obvious index: it must be %d times", best, floor)
			}
		})
	}
}

func TestAHotLookupAllocatesNothing(t *testing.T) {
	for _, s := range shapes {
		p := s.filled(t, 1)
		q := s.query(0)
		var a Answer
		require.Zero(t, testing.AllocsPerRun(50, func() { p.Lookup(q, &a) }), s.name)
		require.True(t, a.Complete)
		require.Len(t, a.Runs, s.holders)
	}
}
