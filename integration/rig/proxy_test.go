package rig_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
)

func proxied(t *testing.T) (*rig.Proxy, *redis.Client) {
	t.Helper()
	p := rig.NewProxy(t, rig.Standalone(t).Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DisableIdentity: true, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Ping(t.Context()).Err())
	return p, c
}

func TestProxyCutBreaksConnectionsAndAdmitsNewOnes(t *testing.T) {
	t.Parallel()
	p, c := proxied(t)
	require.Equal(t, 1, p.Conns())
	p.Cut()
	rig.Eventually(t, 20*time.Second, "a new connection", func() error { return c.Ping(t.Context()).Err() })
}

func TestProxyDownRefusesUntilUp(t *testing.T) {
	t.Parallel()
	p, c := proxied(t)
	p.Down()
	require.Error(t, c.Ping(t.Context()).Err())
	require.ErrorContains(t, c.Ping(t.Context()).Err(), "refused")
	p.Up()
	rig.Eventually(t, 20*time.Second, "a new connection", func() error { return c.Ping(t.Context()).Err() })
}

func TestProxyPauseHoldsBytesAndResumeDeliversThem(t *testing.T) {
	t.Parallel()
	p, c := proxied(t)
	p.Pause()
	done := make(chan error, 1)
	go func() { done <- c.Set(context.WithoutCancel(t.Context()), "k", "v", 0).Err() }()
	select {
	case err := <-done:
		t.Fatalf("answered through a paused proxy: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.Resume()
	require.NoError(t, <-done)
}

func TestProxyBlackholeSwallowsAndResumeStartsAfresh(t *testing.T) {
	t.Parallel()
	p, c := proxied(t)
	p.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, c.Set(ctx, "k", "v", 0).Err())
	p.Resume()
	rig.Eventually(t, 20*time.Second, "a new connection", func() error { return c.Ping(t.Context()).Err() })
	require.ErrorIs(t, c.Get(t.Context(), "k").Err(), redis.Nil, "what was swallowed must not arrive later")
}

func TestProxyDelayKeepsThroughput(t *testing.T) {
	t.Parallel()
	p, c := proxied(t)
	p.Delay(30 * time.Millisecond)
	start := time.Now()
	require.NoError(t, c.Ping(t.Context()).Err())
	require.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)
	p.Delay(0)
	require.NoError(t, c.Ping(t.Context()).Err())
}
