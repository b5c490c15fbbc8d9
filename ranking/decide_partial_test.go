package ranking_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// What the evidence does not cover is not absent: of partial evidence only a match counts.
func TestPartialEvidenceConcludesNothingFromWhatItLacks(t *testing.T) {
	hot := serving("a", "b")
	hot[0] = warm(hot[0], 0.5, time.Second)
	for name, c := range map[string]struct {
		in            *ranking.Input
		ev            ranking.Evidence
		whole, partly ranking.Reason
	}{
		"a match stands":              {ask(3), ranking.Evidence{Serving: hot, Runs: []ranking.Run{run(0, 128)}}, ranking.ReasonPrefixMatch, ranking.ReasonPrefixMatch},
		"an exact match stands":       {askExact(), ranking.Evidence{Serving: hot, Runs: []ranking.Run{run(0, 128)}}, ranking.ReasonPrefixMatch, ranking.ReasonPrefixMatch},
		"a match under the floor":     {ask(3), ranking.Evidence{Serving: hot, Runs: []ranking.Run{run(0, 16)}}, ranking.ReasonAffinityHint, ranking.ReasonNoHint},
		"a chain that nobody holds":   {ask(3), ranking.Evidence{Serving: hot}, ranking.ReasonAffinityHint, ranking.ReasonNoHint},
		"a hash that nobody holds":    {askExact(), ranking.Evidence{Serving: hot}, ranking.ReasonTenantHot, ranking.ReasonNoHint},
		"the same, nobody being warm": {askExact(), ranking.Evidence{Serving: serving("a", "b")}, ranking.ReasonAffinityHint, ranking.ReasonNoHint},
		"a scheme that nobody serves": {ask(1), ranking.Evidence{Census: ranking.CensusSchemeEmpty}, ranking.ReasonUnknownHashScheme, ranking.ReasonNoHint},
	} {
		t.Run(name, func(t *testing.T) {
			for partial, want := range map[bool]ranking.Reason{false: c.whole, true: c.partly} {
				c.ev.Partial = partial
				reason, got := decide(c.in, c.ev)
				require.Equal(t, want, reason)
				require.Equal(t, reason != ranking.ReasonNoHint && reason != ranking.ReasonUnknownHashScheme, len(got) > 0)

				p, k := ranking.DefaultPolicy(), ranking.DefaultKnobs()
				e := ranking.Explain(c.in, &c.ev, &p, &k)
				require.Equal(t, partial, e.Partial)
				if partial {
					require.Equal(t, ranking.NoSeatPartial, e.Seat.Why)
					require.False(t, e.HotAsked)
					require.Empty(t, e.Diagnosis)
				}
			}
		})
	}
}
