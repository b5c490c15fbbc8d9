//go:build !race

package ranking_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// Under the race detector pools drop things at random, so that nothing can be
// said about allocation there.

func TestDecideAllocatesNothing(t *testing.T) {
	hot, affine := matched(300, true), matched(300, false)
	hot.ev.Runs, affine.ev.Runs = nil, nil
	for name, l := range map[string]lookup{
		"chain": matched(300, false), "exact": matched(300, true), "tenant hot": hot, "affinity": affine,
	} {
		dst := make([]ranking.Candidate, 0, 600)
		var reason ranking.Reason
		require.Zero(t, testing.AllocsPerRun(50, func() { reason, _ = ranking.Decide(l.in, l.ev, &l.p, &l.k, dst) }), name)
		require.NotEqual(t, ranking.ReasonNoHint, reason, name)
	}
}
