package conformance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/integration/reference"
	"inferencecache.io/lookuptier/policies"
)

// TestTheObviousIndexConforms holds the service and the slow model against the
// scenarios: a scenario that fails here and nowhere else is the model's fault,
// one that fails everywhere is the service's or the scenario's.
func TestTheObviousIndexConforms(t *testing.T) {
	for _, file := range []string{"cold-start", "rules", "worlds"} {
		t.Run(file, func(t *testing.T) {
			scenarios, err := conformance.Load("../testdata/conformance/" + file + ".json")
			require.NoError(t, err)
			require.NotEmpty(t, scenarios)
			set, err := policies.Parse(policies.Source{Name: file, Data: conformance.PolicyFile(scenarios)})
			require.NoError(t, err)
			c := reference.Serve(t, set)
			if !scenarios[0].Fresh {
				require.NoError(t, conformance.Report(t.Context(), c, conformance.Stranger()))
			}
			for _, s := range scenarios {
				t.Run(s.Name, func(t *testing.T) {
					require.NoError(t, s.Run(t.Context(), conformance.Target{Write: c, Read: c}), s.Why)
				})
			}
		})
	}
}
