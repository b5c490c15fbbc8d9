package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// probed is a prober on a Redis of its own.
type probed struct {
	*prober
	redis    redis.UniversalClient
	registry *prometheus.Registry
}

func probing(t *testing.T) (*probed, *store.Store) {
	t.Helper()
	client, err := store.Dial(store.DialOptions{URL: serveRedis(t, "127.0.0.1:0").URL()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, err := store.New(store.Options{Redis: client})
	require.NoError(t, err)
	ready, registry := newReadiness(), prometheus.NewRegistry()
	return &probed{&prober{store: s, readiness: ready, gate: &gate{index: s, changes: s}, log: slog.New(slog.DiscardHandler),
		metrics: newPodMetrics(registry, ready), opened: func() {}}, client, registry}, s
}

func TestTheGateIsOpenBeforeThePodIsReady(t *testing.T) {
	p, _ := probing(t)
	p.opened = func() {
		require.True(t, p.gate.opened())
		require.NoError(t, p.gate.closed())
		require.Error(t, p.readiness.whyNot())
	}
	require.NoError(t, p.probe(t.Context()))
	require.NoError(t, p.readiness.whyNot())
}

func TestNothingPassesAClosedGate(t *testing.T) {
	p, _ := probing(t)
	nothingPasses(t, p.gate, errNotAgreed)
}

// nothingPasses wants every call of g refused for why.
func nothingPasses(t *testing.T, g *gate, why error) {
	t.Helper()
	ctx, scope := context.Background(), ranking.Scope{Tenant: "t", Model: "m"}
	require.ErrorIs(t, g.Match(ctx, &ranking.Query{Scope: scope}, &ranking.Evidence{}), why)
	require.ErrorIs(t, g.Report(ctx, &ranking.Report{Scope: scope, Replica: "r"}), why)
	require.ErrorIs(t, g.Publish(ctx, &ranking.Event{Scope: scope, Replica: "r"}), why)
	_, err := g.State(ctx, scope)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, g.Follow(ctx, &ranking.ChangeFilter{}, func() {}, nil), why)
}

func TestALayoutThatChangesUnderThePodShutsTheGateUntilItIsBack(t *testing.T) {
	p, s := probing(t)
	opened := 0
	p.opened = func() { opened++ }
	require.NoError(t, p.probe(t.Context()))
	following := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		following <- p.gate.Follow(t.Context(), &ranking.ChangeFilter{}, func() { close(started) }, func(*ranking.Change) error { return nil })
	}()
	<-started

	for range 2 {
		require.NoError(t, p.redis.HSet(t.Context(), store.LayoutKey, "shards", 7).Err())
		require.ErrorIs(t, p.probe(t.Context()), store.ErrLayout)
		require.ErrorContains(t, p.readiness.whyNot(), "--shards 7")
		_, mismatch := series(t, p.registry, "inferencecache_layout_mismatch")
		require.EqualValues(t, 1, mismatch)
		nothingPasses(t, p.gate, store.ErrLayout)

		require.NoError(t, p.redis.HSet(t.Context(), store.LayoutKey, "shards", 1).Err())
		require.NoError(t, p.probe(t.Context()))
		require.NoError(t, p.readiness.whyNot())
		_, mismatch = series(t, p.registry, "inferencecache_layout_mismatch")
		require.Zero(t, mismatch)
		require.NoError(t, p.gate.Report(t.Context(), &ranking.Report{Scope: ranking.Scope{Tenant: "t", Model: "m"}, Replica: "r"}))
	}
	require.Equal(t, 1, opened, "the sweeper is started once")
	require.ErrorIs(t, <-following, store.ErrLayout, "a stream that is under way ends too")
	require.NoError(t, s.CheckLayout(t.Context()))
}

func TestALayoutThatIsWrongFromTheStartEndsThePod(t *testing.T) {
	p, _ := probing(t)
	require.NoError(t, p.redis.HSet(t.Context(), store.LayoutKey, "version", 1, "shards", 7).Err())
	require.ErrorIs(t, p.run(t.Context()), store.ErrLayout)
}

func TestAProbeThatShutdownCutsOffIsNoNews(t *testing.T) {
	p, _ := probing(t)
	require.NoError(t, p.probe(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.probe(ctx))
	require.NoError(t, p.readiness.whyNot())
}

func TestOnceLeavingThePodIsNeverReadyAgain(t *testing.T) {
	p, _ := probing(t)
	p.readiness.leave()
	require.NoError(t, p.probe(t.Context()))
	require.ErrorIs(t, p.readiness.whyNot(), errShuttingDown)
}
