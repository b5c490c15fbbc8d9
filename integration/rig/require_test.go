package rig_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
)

// TestWhatIsMissingIsSeen runs this binary again where no redis-server, or no such Python, is found.
func TestWhatIsMissingIsSeen(t *testing.T) {
	switch os.Getenv("RIG_REQUIRES") {
	case "redis":
		rig.Require(t)
		return
	case "python":
		rig.RequirePython(t, "nowhere", "nobody")
		return
	}
	for what, c := range map[string]struct{ demanded, install string }{
		"redis":  {rig.EnvRequire, "apt-get install redis-server"},
		"python": {rig.EnvRequirePython, "apt-get install python3-nowhere python3-nobody"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			run := func(env ...string) (string, error) {
				child := exec.Command(os.Args[0], "-test.run=^TestWhatIsMissingIsSeen$", "-test.v")
				child.Env = append(os.Environ(), append(env, "RIG_REQUIRES="+what, rig.EnvServer+"=/nowhere/redis-server")...)
				out, err := child.CombinedOutput()
				return string(out), err
			}
			out, err := run(c.demanded + "=1")
			require.Error(t, err, "CI demands it")
			require.Contains(t, out, "--- FAIL: TestWhatIsMissingIsSeen")
			require.Contains(t, out, c.install)

			out, err = run(c.demanded + "=")
			require.NoError(t, err)
			require.Contains(t, out, "--- SKIP: TestWhatIsMissingIsSeen")
			require.Contains(t, out, c.install)
		})
	}
}
