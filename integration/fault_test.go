package integration_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/store"
)

// mentions is nil if err says text.
func mentions(err error, text string) error {
	switch {
	case err == nil:
		return fmt.Errorf("%w: no error, and so no %q", errUnmentioned, text)
	case !strings.Contains(err.Error(), text):
		return fmt.Errorf("%w: no %q in: %w", errUnmentioned, text, err)
	}
	return nil
}

var errUnmentioned = errors.New("not mentioned")

// onStandalone is a pod on a Redis of its own that holds a chain of r1. Its sweeper
// works all the time, so that no fault can escape it.
func onStandalone(t *testing.T, opts ...rig.Option) (*rig.Server, *pod.Pod, [][]byte) {
	t.Helper()
	s := rig.Standalone(t, opts...)
	p := pod.Start(t, "--redis", s.URL(), "--sweep-interval", "100ms")
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
	remembers(t, p, hashes)
	return s, p, hashes
}

// remembers waits until the pod answers the tenant's chain, which r1 has, from memory.
func remembers(t *testing.T, p *pod.Pod, hashes [][]byte) {
	t.Helper()
	rig.Eventually(t, settleLimit, "a partition answered from memory", func() error {
		if err := answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r1")(); err != nil {
			return err
		}
		if p.Metric("inferencecache_cache_partitions", `state="live"`) == 0 {
			return errors.New("none is live")
		}
		return nil
	})
}

func TestAPausedRedisCostsNoLookup(t *testing.T) {
	t.Parallel()
	s, p, hashes := onStandalone(t)
	traffic := lookups(t, p.Client, "tenant", hashes)
	s.Pause()
	began := time.Now()
	failsOpen(t, p.Client)
	refusesWrites(t, p.Client, "tenant")
	rig.Eventually(t, settleLimit, "being not ready", func() error {
		if p.Ready() == nil {
			return errors.New("ready on a Redis that does not answer")
		}
		return nil
	})
	time.Sleep(time.Until(began.Add(pauseFor)))
	// Memory has become too old to answer, and says nothing rather than something wrong.
	r, err := lookup(t.Context(), p.Client, "tenant", hashes)
	require.NoError(t, err)
	require.Contains(t, []string{"NO_HINT", "TIMEOUT"}, r.GetReasonCode())
	s.Resume()
	rig.Eventually(t, settleLimit, "the old hint", answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r1"))
	comesBack(t, p.Client, "tenant")
	traffic.stop()
	p.WaitReady()
}

// pauseFor is longer than anything that waits for Redis, and than memory answers without it.
const pauseFor = 10 * time.Second

func TestARedisThatComesBackEmptyNeedsNoRestartOfThePod(t *testing.T) {
	t.Parallel()
	s, p, hashes := onStandalone(t)
	traffic := lookups(t, p.Client, "tenant", hashes)
	s.Kill()
	failsOpen(t, p.Client)
	refusesWrites(t, p.Client, "tenant")
	s.Restart()
	rig.Eventually(t, settleLimit, "the old hint being gone", answers(t, p.Client, "tenant", hashes, "NO_HINT", ""))
	comesBack(t, p.Client, "tenant")
	p.WaitReady()
	c := s.Client()
	rig.Eventually(t, settleLimit, "the layout being written again", func() error {
		if n, err := c.Exists(t.Context(), store.LayoutKey).Result(); err != nil || n != 1 {
			return fmt.Errorf("%d layout keys, %w", n, err)
		}
		return nil
	})
	// The catalog must know what came back, or diagnoses are wrong.
	require.NoError(t, answers(t, p.Client, "stranger", hashes, "UNKNOWN_TENANT", "")())
	// An emptied and a restarted index end up the same.
	require.NoError(t, c.FlushAll(t.Context()).Err())
	rig.Eventually(t, settleLimit, "the hint being gone", answers(t, p.Client, "tenant", chain(2, 20), "NO_HINT", ""))
	comesBack(t, p.Client, "tenant")
	require.NoError(t, answers(t, p.Client, "stranger", hashes, "UNKNOWN_TENANT", "")())
	traffic.stop()
}

func TestARestartFromDiskKeepsHints(t *testing.T) {
	t.Parallel()
	s, p, hashes := onStandalone(t, rig.WithAOF())
	s.Kill()
	s.Restart()
	rig.Eventually(t, settleLimit, "the old hint", answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r1"))
	comesBack(t, p.Client, "tenant")
}

func TestLostScriptsAndConnectionsAreNotNoticed(t *testing.T) {
	t.Parallel()
	s, p, hashes := onStandalone(t, rig.WithConfig("enable-debug-command yes"))
	c := s.Client()
	for _, fault := range [][]any{
		{"SCRIPT", "FLUSH", "SYNC"},
		{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"},
		{"DEBUG", "RELOAD"},
	} {
		t.Run(fmt.Sprint(fault[:2]...), func(t *testing.T) {
			traffic := lookups(t, p.Client, "tenant", hashes)
			defer traffic.stop()
			for range 5 {
				require.NoError(t, c.Do(t.Context(), fault...).Err())
				require.NoError(t, answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r1")())
				require.NoError(t, c.Do(t.Context(), fault...).Err())
				require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
				require.NoError(t, c.Do(t.Context(), fault...).Err())
				_, err := p.Client.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: "tenant", ModelId: model})
				require.NoError(t, err)
			}
		})
	}
}

func TestACutOrSilentNetworkCostsNoLookup(t *testing.T) {
	t.Parallel()
	proxy := rig.NewProxy(t, rig.Standalone(t).Addr())
	p := pod.Start(t, "--redis", "redis://"+proxy.Addr())
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
	traffic := lookups(t, p.Client, "tenant", hashes)
	for name, fault := range map[string]struct{ breaks, mends func() }{
		"down":      {proxy.Down, proxy.Up},
		"blackhole": {proxy.Blackhole, proxy.Resume},
	} {
		fault.breaks()
		failsOpen(t, p.Client)
		refusesWrites(t, p.Client, "tenant")
		fault.mends()
		rig.Eventually(t, settleLimit, "the old hint after "+name, answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r1"))
		comesBack(t, p.Client, "tenant")
	}
	traffic.stop()
}

func TestAPodStartsBeforeItsRedis(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t)
	s.Kill()
	p := pod.StartUnready(t, "--redis", s.URL())
	require.Error(t, p.Ready())
	failsOpen(t, p.Client)
	refusesWrites(t, p.Client, "tenant")
	s.Restart()
	p.WaitReady()
	live(t, p.Client, "tenant")
}
