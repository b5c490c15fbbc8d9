package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMemoryLimitTooSmallForTheCacheIsWarnedOf(t *testing.T) {
	p := launchWith(t, []string{"GOMEMLIMIT=128MiB"}, "--cache-bytes=120MiB")
	line := p.waitLog("GOMEMLIMIT leaves no room")
	require.Equal(t, "128MiB", line["gomemlimit"])
	require.Equal(t, "1.34217728e+08", p.metric("go_gc_gomemlimit_bytes"), "the limit is in force")
	for _, args := range [][]string{{"--cache-bytes=64MiB"}, {"--cache=off"}} {
		p := launchWith(t, []string{"GOMEMLIMIT=128MiB"}, args...)
		p.waitReady()
		require.NotContains(t, p.log(), "GOMEMLIMIT")
	}
}
