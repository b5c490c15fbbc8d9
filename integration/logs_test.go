package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// A log is read by machines, and written to disks: whatever happens, each line is
// JSON, and one fault does not say the same of each tenant.
func TestFaultsOfRedisWriteFewLinesAndNoneThatIsNotJSON(t *testing.T) {
	t.Parallel()
	const tenants = 60
	s := rig.Standalone(t)
	p := pod.Start(t, "--redis", s.URL())
	hashes := chain(1, 4)
	for i := range tenants {
		tenant := fmt.Sprint("tenant-", i)
		require.NoError(t, report(t.Context(), p.Client, tenant, "r1", hashes))
		require.NoError(t, answers(t, p.Client, tenant, hashes, "PREFIX_MATCH", "r1")())
	}
	rig.Eventually(t, settleLimit, "all partitions being followed", func() error {
		if n := p.Metric("inferencecache_cache_partitions", `state="live"`); n != tenants {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	require.NoError(t, s.Client().FlushAll(t.Context()).Err())
	rig.Eventually(t, settleLimit, "all partitions being dropped", func() error {
		if n := p.Metric("inferencecache_cache_dropped_total"); n < tenants {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	s.Kill()
	rig.Eventually(t, settleLimit, "being not ready", func() error {
		if p.Ready() == nil {
			return errors.New("ready without a Redis")
		}
		return nil
	})
	failsOpen(t, p.Client)
	s.Restart()
	p.WaitReady()
	p.Stop()

	dropped := 0
	for line := range strings.Lines(p.Process().Output()) {
		require.True(t, json.Valid([]byte(line)), "not JSON: %s", line)
		if strings.Contains(line, "reads through until") {
			dropped++
		}
	}
	require.Positive(t, dropped)
	require.Less(t, dropped, tenants/2, "lines about dropped partitions")
}
