package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// pod is a running lookup pod.
type pod struct {
	config    *config
	log       *slog.Logger
	metrics   *podMetrics
	readiness *readiness
	policies  policySource
	tracer    tracer
	endless   *endless
	security  security
	backend   *backend
	cached    *store.Cached // nil with --cache off
	grpc      *grpc.Server
	http      *http.Server
	// broken gets the first error that the pod cannot live with.
	broken chan error
	// stop ends the workers: prober, sweeper, and who reads secrets again.
	stop    context.CancelFunc
	workers sync.WaitGroup
	// listening are the two serve loops.
	listening sync.WaitGroup
	once      sync.Once
}

// start builds the pod from the inside out and lets it listen last. It does not
// wait for Redis: until Redis answers the pod is not ready, and lookups fail open.
func start(c *config, log *slog.Logger) (*pod, error) {
	p := &pod{config: c, log: log, readiness: newReadiness(), endless: newEndless(), broken: make(chan error, 4)}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if err := p.build(ctx); err != nil {
		p.shutdown(nil)
		return nil, err
	}
	return p, nil
}

func (p *pod) build(ctx context.Context) (err error) {
	c, log := p.config, p.log
	warnOfMemory(c, log)
	registry := prometheus.NewRegistry()
	p.metrics = newPodMetrics(registry, p.readiness)
	if p.tracer, err = openTracer(ctx, registry, log); err != nil {
		return err
	}
	if p.policies, err = watchPolicies(c, p.metrics, log); err != nil {
		return err
	}
	if p.security, err = openSecurity(c, registry, p.metrics, log); err != nil {
		return err
	}
	// Ports first: a taken one must not cost a half-started pod.
	grpcListener, err := listen(ctx, "grpc-bind-address", c.GRPCBindAddress)
	if err != nil {
		return err
	}
	httpListener, err := listen(ctx, "http-bind-address", c.HTTPBindAddress)
	if err != nil {
		return errors.Join(err, grpcListener.Close())
	}
	service, prober, sweeper, err := p.wire(registry)
	if err != nil {
		return errors.Join(err, grpcListener.Close(), httpListener.Close())
	}
	prober.opened = func() { p.workers.Go(func() { sweeper.Run(ctx) }) }
	p.workers.Go(func() { p.security.follow(ctx) })
	p.workers.Go(func() {
		if err := prober.run(ctx); err != nil {
			p.broken <- err
		}
	})
	p.grpc = newGRPC(c, service, p.readiness, p.tracer, p.endless, &p.security)
	p.http = newHTTP(registry, p.readiness, log)
	p.serve(grpcListener, httpListener)
	return nil
}

// wire connects Redis, the store and the service.
func (p *pod) wire(registry *prometheus.Registry) (*lookupsvc.Service, *prober, *store.Sweeper, error) {
	c, log := p.config, p.log
	b, err := openBackend(c, p.security.redis, log)
	if err != nil {
		return nil, nil, nil, err
	}
	p.backend = b
	if b.replicas != nil {
		registry.MustRegister(b.replicas)
	}
	index, err := store.New(store.Options{
		Redis: b.client, Replicas: b.replicas, Shards: c.Shards, KeyTTL: time.Duration(c.KeyTTL),
		Observer: newIndexMetrics(registry, c.Shards, p.policies.For, log), Tracer: p.tracer.walks(), Logger: log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	sweeper, err := store.NewSweeper(index, store.SweeperOptions{
		Interval:    time.Duration(c.Sweep),
		EvictionTTL: func(tenant string) time.Duration { return p.policies.For(tenant).EvictionTTL },
	})
	if err != nil {
		return nil, nil, nil, err
	}
	g := &gate{index: index, changes: index}
	if c.Cache == "on" {
		if p.cached, err = remember(c, index, registry); err != nil {
			return nil, nil, nil, err
		}
		g.index = p.tracer.around(p.cached)
	}
	service, err := lookupsvc.New(lookupsvc.Options{
		Index: g, Policy: p.policies.For, Knobs: c.knobs(),
		BlockSize: c.EngineBlockSize, LookupTimeout: time.Duration(c.LookupTimeout),
		Metrics: registry, Tracer: p.tracer.lookups(), Changes: g, Gatherer: registry, Log: log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return service, &prober{store: index, readiness: p.readiness, gate: g, metrics: p.metrics, log: log}, sweeper, nil
}

// remember puts the pod's memory in front of the store.
func remember(c *config, index *store.Store, registry *prometheus.Registry) (*store.Cached, error) {
	cached, err := store.NewCached(index, store.CachedOptions{
		Bytes: int64(c.CacheBytes), MaxStaleness: time.Duration(c.MaxStaleness),
	})
	if err != nil {
		return nil, err
	}
	if err := registry.Register(cached); err != nil {
		cached.Close()
		return nil, err
	}
	return cached, nil
}

func (c *config) knobs() ranking.Knobs {
	return ranking.Knobs{
		PressureWeight:      c.PressureWeight,
		SLOTightTTFTMS:      c.SLOTightTTFT,
		SLOTightBias:        c.SLOTightBias,
		TenantHotMinHitRate: c.HotMinHitRate,
		TenantHotMaxAge:     time.Duration(c.TenantHotMaxAge),
	}
}

func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return l, nil
}

func (p *pod) serve(grpcListener, httpListener net.Listener) {
	p.listening.Go(func() {
		if err := p.grpc.Serve(grpcListener); err != nil {
			p.broken <- fmt.Errorf("gRPC server: %w", err)
		}
	})
	p.listening.Go(func() {
		if err := p.http.Serve(httpListener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			p.broken <- fmt.Errorf("HTTP server: %w", err)
		}
	})
	p.metrics.up.Set(1)
	p.log.Info("listening", "grpc", grpcListener.Addr().String(), "http", httpListener.Addr().String(), "version", version)
}
