package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"inferencecache.io/lookuptier/store"
)

const (
	// probeEvery is how often Redis is asked whether it answers.
	probeEvery = time.Second
	// probeTimeout is how long it may take to.
	probeTimeout = time.Second
	// reloadEvery is how often the scripts are loaded again, though no call
	// missed one: after a failover the new primary may lack them.
	reloadEvery = 30 * time.Second
	// repeatEvery is how often the log says again that Redis is still away.
	repeatEvery = 30 * time.Second
)

// prober keeps the readiness up to date with Redis and opens the gate once.
type prober struct {
	store     *store.Store
	readiness *readiness
	gate      *gate
	metrics   *podMetrics
	log       *slog.Logger
	// opened is called once, when the layout was agreed on.
	opened func()

	loaded time.Time // when the scripts were last loaded; zero = to be loaded
	said   time.Time // when the log last had that Redis is away
}

// run probes until ctx ends. It returns an error only if the pod must not go on:
// Redis holds another layout than this pod was started for.
func (p *prober) run(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if err := p.probe(ctx); errors.Is(err, store.ErrLayout) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *prober) probe(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	start := time.Now()
	ask := p.store.CheckLayout
	if time.Since(p.loaded) > reloadEvery {
		ask = p.store.Ready
	}
	err := ask(within)
	if ctx.Err() != nil {
		return nil // shutting down; that is no news about Redis
	}
	p.metrics.probed(err, time.Since(start))
	if err != nil {
		p.loaded = time.Time{}
	} else if p.loaded.IsZero() || time.Since(p.loaded) > reloadEvery {
		p.loaded = time.Now()
	}
	// The gate first: who sees the pod ready may write to it.
	if err == nil && p.gate.open.CompareAndSwap(false, true) {
		p.opened()
	}
	before := p.readiness.setIndex(err)
	p.tell(before, err)
	return err
}

// tell logs changes, and what stays bad once in a while.
func (p *prober) tell(before, err error) {
	switch {
	case err == nil && before != nil:
		p.log.Info("ready: Redis answers, scripts are loaded, the layout agrees")
	case err != nil && (before == nil || time.Since(p.said) > repeatEvery):
		p.said = time.Now()
		p.log.Error("not ready: Redis does not answer as it should; lookups fail open, and it is asked again", "error", err)
	}
}
