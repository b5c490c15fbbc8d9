package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// TestWhatExpiresLeavesNothingBehind: a hold that is not reported again stops
// matching, then a sweep takes it out of the serving set, the count of prefixes,
// the catalog and Redis.
func TestWhatExpiresLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	const policy = `
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: short, namespace: tenant}
spec: {evictionTTL: 1s}
`
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600))
	s := rig.Standalone(t)
	p := pod.Start(t, "--redis", s.URL(), "--policy-dir", dir, "--sweep-interval", "100ms")
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "lasting", "r1", hashes))
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))

	rig.Eventually(t, settleLimit, "a tenant being forgotten", answers(t, p.Client, "tenant", hashes, "UNKNOWN_TENANT", ""))
	rig.Eventually(t, settleLimit, "its state being empty", func() error {
		state, err := p.Client.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: "tenant", ModelId: model})
		if err != nil {
			return err
		}
		if state.GetSummary().GetTotalPrefixes() != 0 || len(state.GetReplicas()) != 0 {
			return fmt.Errorf("%v", state)
		}
		return nil
	})
	rig.Eventually(t, settleLimit, "evictions being counted", func() error {
		if n := p.Metric("inferencecache_tenant_evictions_total", `tenant_id="tenant"`); n != 20 {
			return fmt.Errorf("%v of the tenant's evictions, want 20", n)
		}
		return nil
	})
	require.NoError(t, answers(t, p.Client, "lasting", hashes, "PREFIX_MATCH", "r1")())
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r2", hashes))
	require.NoError(t, answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r2")())
}
