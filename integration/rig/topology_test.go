package rig_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
)

func TestClusterSpreadsKeysOverItsNodes(t *testing.T) {
	t.Parallel()
	set := rig.Cluster(t, 3)
	c := set.Client()
	owners := map[string]bool{}
	for i := range 50 {
		key := fmt.Sprintf("{%d}:k", i)
		require.NoError(t, c.Set(t.Context(), key, i, 0).Err())
		owners[set.Owner(key).Addr()] = true
	}
	require.Len(t, owners, 3)
}

func TestClusterReplicaTakesOver(t *testing.T) {
	t.Parallel()
	set := rig.ClusterWithReplicas(t, 3)
	c := set.Client()
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, c.Do(t.Context(), "WAIT", 1, 5000).Err())
	old := set.Owner("k")
	old.Kill()
	rig.Eventually(t, 60*time.Second, "the replica's promotion", func() error { return c.Set(t.Context(), "k", "w", 0).Err() })
	require.NotEqual(t, old.Addr(), set.Owner("k").Addr())
	old.Restart()
	set.WaitOK()
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	set := rig.Sentinel(t)
	c := set.Client()
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	old := set.Failover()
	require.NotEqual(t, old.Addr(), set.Master().Addr())
	rig.Eventually(t, 60*time.Second, "a write to the new master", func() error { return c.Set(t.Context(), "k", "w", 0).Err() })
	old.Restart()
}
