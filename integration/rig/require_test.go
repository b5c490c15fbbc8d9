package rig_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
)

// TestAMissingRedisIsSeen runs this binary again where no redis-server is found.
func TestAMissingRedisIsSeen(t *testing.T) {
	if os.Getenv("RIG_REQUIRES") != "" {
		rig.Require(t)
		return
	}
	t.Parallel()
	run := func(env ...string) (string, error) {
		child := exec.Command(os.Args[0], "-test.run=^TestAMissingRedisIsSeen$", "-test.v")
		child.Env = append(os.Environ(), append(env, "RIG_REQUIRES=1", rig.EnvServer+"=/nowhere/redis-server")...)
		out, err := child.CombinedOutput()
		return string(out), err
	}
	out, err := run(rig.EnvRequire + "=1")
	require.Error(t, err, "CI demands it")
	require.Contains(t, out, "--- FAIL: TestAMissingRedisIsSeen")
	require.Contains(t, out, "apt-get install redis-server")

	out, err = run(rig.EnvRequire + "=")
	require.NoError(t, err)
	require.Contains(t, out, "--- SKIP: TestAMissingRedisIsSeen")
	require.Contains(t, out, "apt-get install redis-server")
}
