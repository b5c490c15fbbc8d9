package main

import (
	"errors"
	"sync"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// The components of the gRPC health service. The empty name is the pod as a
// whole and says what /readyz says.
const (
	// healthIndex is Redis, with the scripts and the layout that the pod needs.
	healthIndex = "index"
)

// healthService takes calls from the first time the pod was ready until it shuts
// down: a lookup fails open, so Redis' absence is no reason to send callers away.
var healthService = pb.InferenceCache_ServiceDesc.ServiceName

var (
	errStarting     = errors.New("starting: Redis was not asked yet")
	errShuttingDown = errors.New("shutting down")
)

// readiness is whether the pod should get traffic, and why not. It tells the
// gRPC health service of each change.
type readiness struct {
	health *health.Server

	mu      sync.Mutex
	index   error // why the index cannot be used; nil = it can
	leaving bool
	served  bool // ready at least once
}

func newReadiness() *readiness {
	r := &readiness{health: health.NewServer(), index: errStarting}
	for _, name := range []string{"", healthService, healthIndex} {
		r.health.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
	}
	return r
}

// setIndex takes the result of a probe and returns what it was before.
func (r *readiness) setIndex(err error) (before error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.index = r.index, err
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if err == nil {
		status = healthpb.HealthCheckResponse_SERVING
	}
	// After Shutdown the health server ignores these.
	r.health.SetServingStatus("", status)
	r.health.SetServingStatus(healthIndex, status)
	if err == nil && !r.served {
		r.served = true
		r.health.SetServingStatus(healthService, healthpb.HealthCheckResponse_SERVING)
	}
	return before
}

// leave makes the pod not ready for good.
func (r *readiness) leave() {
	r.mu.Lock()
	r.leaving = true
	r.mu.Unlock()
	r.health.Shutdown()
}

// whyNot is nil while the pod is ready.
func (r *readiness) whyNot() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving {
		return errShuttingDown
	}
	return r.index
}
