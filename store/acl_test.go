package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/store"
)

var luaCommand = regexp.MustCompile(`(?:call|read)\('([A-Z]+)'`)

// A command that a script has learnt must be granted too: scripts run as their caller.
func TestTheACLsGrantWhatTheScriptsCall(t *testing.T) {
	files, err := filepath.Glob("../scripts/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range luaCommand.FindAllStringSubmatch(string(text), -1) {
			rule := "+" + strings.ToLower(m[1])
			require.Contains(t, store.PodACL(), rule, file)
			if !strings.HasPrefix(filepath.Base(file), "sweep") {
				require.Contains(t, store.SidecarACL(scope, 1), rule, file)
			}
		}
	}
}

func TestAnOperatorMayChangeNothing(t *testing.T) {
	for _, command := range []string{"hset", "hdel", "xadd", "xtrim", "zadd", "zrem", "zremrangebyrank", "zremrangebyscore", "set", "del", "pexpire", "flushall", "config|set"} {
		require.NotContains(t, store.OperatorACL(), "+"+command)
	}
}
