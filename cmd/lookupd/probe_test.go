package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// probing is a prober on a store of its own.
func probing(t *testing.T) (*prober, *store.Store) {
	t.Helper()
	redis := serveRedis(t, "127.0.0.1:0")
	client, err := store.Dial(store.DialOptions{URL: redis.URL()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, err := store.New(store.Options{Redis: client})
	require.NoError(t, err)
	ready := newReadiness()
	return &prober{store: s, readiness: ready, gate: &gate{index: s}, log: slog.New(slog.DiscardHandler),
		metrics: newPodMetrics(prometheus.NewRegistry(), ready), opened: func() {}}, s
}

func TestTheGateIsOpenBeforeThePodIsReady(t *testing.T) {
	p, _ := probing(t)
	p.opened = func() {
		require.True(t, p.gate.open.Load())
		require.Error(t, p.readiness.whyNot())
	}
	require.NoError(t, p.probe(t.Context()))
	require.NoError(t, p.readiness.whyNot())
}

func TestNothingPassesAClosedGate(t *testing.T) {
	p, _ := probing(t)
	g, ctx := p.gate, context.Background()
	scope := ranking.Scope{Tenant: "t", Model: "m"}
	require.ErrorIs(t, g.Match(ctx, &ranking.Query{Scope: scope}, &ranking.Evidence{}), errNotAgreed)
	require.ErrorIs(t, g.Report(ctx, &ranking.Report{Scope: scope, Replica: "r"}), errNotAgreed)
	require.ErrorIs(t, g.Publish(ctx, &ranking.Event{Scope: scope, Replica: "r"}), errNotAgreed)
	_, err := g.State(ctx, scope)
	require.ErrorIs(t, err, errNotAgreed)
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
