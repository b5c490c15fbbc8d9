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

// prober keeps the readiness up to date with Redis, and the gate with the layout.
type prober struct {
	store     *store.Store
	readiness *readiness
	gate      *gate
	metrics   *podMetrics
	log       *slog.Logger
	// opened is called once, when the layout was first agreed on.
	opened func()

	loaded time.Time // when the scripts were last loaded; zero = to be loaded
	said   time.Time // when the log last had that Redis is away
}

// run probes until ctx ends. It returns an error only if the pod must not start:
// Redis holds another layout than it was given flags for. A layout that changes under
// a running pod is somebody else's mistake, and all pods at once must not end for it:
// they stop using the index until the layout is theirs again.
func (p *prober) run(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if err := p.probe(ctx); errors.Is(err, store.ErrLayout) && !p.gate.opened() {
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
	switch {
	case err == nil:
		if p.gate.open() {
			p.opened()
		}
	case errors.Is(err, store.ErrLayout):
		p.gate.shut(err)
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
	case err != nil && (before == nil || errors.Is(err, store.ErrLayout) != errors.Is(before, store.ErrLayout) || time.Since(p.said) > repeatEvery):
		p.said = time.Now()
		if errors.Is(err, store.ErrLayout) {
			p.log.Error("not ready: the layout in Redis is not this pod's; lookups fail open, writes are refused, "+
				"and it is compared again every second", "error", err)
			return
		}
		p.log.Error("not ready: Redis does not answer as it should; lookups fail open, and it is asked again", "error", err)
	}
}
