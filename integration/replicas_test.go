package integration_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// readsReplicas waits until a pod's replica reads come to something. In traffic only:
// with a memory nothing is read that is known.
func readsReplicas(t *testing.T, p *pod.Pod, ask func()) {
	t.Helper()
	rig.Eventually(t, settleLimit, "reads from replicas", func() error {
		ask()
		if p.Metric("inferencecache_replica_reads_total", `outcome="used"`) == 0 {
			return errors.New("none was used")
		}
		return nil
	})
}

func TestAFailoverUnderReadsFromReplicasCostsNoLookup(t *testing.T) {
	for _, cache := range []string{"on", "off"} {
		t.Run("Sentinel, cache "+cache, func(t *testing.T) {
			t.Parallel()
			set := rig.Sentinel(t)
			failover(t, pod.Start(t, "--redis", set.URL(), "--read-from", "replica", "--cache", cache), set.Failover, func() {})
		})
		t.Run("Cluster, cache "+cache, func(t *testing.T) {
			t.Parallel()
			set := rig.ClusterWithReplicas(t, 3)
			failover(t, pod.Start(t, "--redis", set.URL(), "--read-from", "replica", "--cache", cache), func() *rig.Server {
				old := set.Owner(store.KeysOf(ranking.Scope{Tenant: "tenant", Model: model}, 0).Head())
				old.Kill()
				return old
			}, set.WaitOK)
		})
	}
}

func failover(t *testing.T, p *pod.Pod, kill func() *rig.Server, healed func()) {
	t.Helper()
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
	novel := 100
	readsReplicas(t, p, func() {
		novel++ // a chain that no memory has beyond its start
		_, err := lookup(t.Context(), p.Client, "tenant", append(chain(1, 10), chain(novel, 10)...))
		require.NoError(t, err)
	})
	traffic := lookups(t, p.Client, "tenant", hashes)
	old := kill()
	comesBack(t, p.Client, "tenant")
	old.Restart()
	healed()
	comesBack(t, p.Client, "another")
	traffic.stop()
	p.WaitReady()
}
