package client

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// The real lookupd: paused, so that its kernel still takes connections and nothing
// answers on them, and killed.

func TestARealPodThatIsPausedAndGoesOn(t *testing.T) {
	p := pod.Start(t)
	c := dialPod(t, p.GRPCAddr)
	r := newReporter(t, c, ReporterOptions{Timeout: time.Second})
	require.NoError(t, r.Report(patient(t), update("r1", "aa", "bb")))
	require.NoError(t, r.Flush(patient(t)))
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))
	require.True(t, c.packing.on())
	requireHint(t, "r1", c.LookupRoute(ctx, request("aa", "bb")))

	require.NoError(t, p.Process().Signal(syscall.SIGSTOP))
	hasty := dialPod(t, p.GRPCAddr, func(o *Options) { o.Timeout = DefaultTimeout })
	for range 5 {
		require.Equal(t, Timeout, hasty.LookupRoute(ctx, request("aa", "bb")).Reason)
	}
	require.NoError(t, r.Report(patient(t), update("r2", "aa", "bb", "cc")))
	require.NoError(t, p.Process().Signal(syscall.SIGCONT))
	require.NoError(t, r.Flush(patient(t)))
	rig.Eventually(t, limit, "a hint from what was reported meanwhile", func() error {
		res := c.LookupRoute(ctx, request("aa", "bb", "cc"))
		if best, _ := res.Best(); best != "r2" {
			return fmt.Errorf("%+v", res)
		}
		return nil
	})
}

func TestARealPodThatIsKilledWhileAnotherLives(t *testing.T) {
	one := pod.Start(t)
	c := dialPod(t, one.GRPCAddr)
	r := newReporter(t, c, ReporterOptions{Timeout: time.Second})
	require.NoError(t, r.Report(patient(t), update("r1", "aa")))
	require.NoError(t, r.Flush(patient(t)))

	addr := rig.FreeAddr(t)
	victim := pod.Launch(t, "--grpc-bind-address", addr, "--redis", one.EmbeddedURL)
	alone := dialPod(t, addr)
	rig.Eventually(t, time.Minute, "hints from the other pod", func() error { return alone.LookupRoute(ctx, request("aa")).Err })
	requireHint(t, "r1", alone.LookupRoute(ctx, request("aa")))
	both := dialPod(t, "all:///pods", allOf(one.GRPCAddr, addr))
	for range 10 {
		requireHint(t, "r1", both.LookupRoute(ctx, request("aa")))
	}
	victim.Kill()
	rig.Eventually(t, limit, "hints from the pod that lives", func() error { return both.LookupRoute(ctx, request("aa")).Err })
	for range 20 {
		requireHint(t, "r1", both.LookupRoute(ctx, request("aa")))
	}
}
