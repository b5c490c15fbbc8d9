package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/tracing"
)

// traceGrace is how long a pod that leaves waits for the collector to take the last spans.
const traceGrace = 2 * time.Second

// tracer is the pod's tracing, or none: with none every method leaves things as they are.
type tracer struct{ on *tracing.Tracing }

func openTracer(ctx context.Context, reg prometheus.Registerer, log *slog.Logger) (tracer, error) {
	counts := tracing.NewCounts(reg)
	enabled, err := tracing.Enabled()
	if err != nil {
		return tracer{}, &usageError{err}
	}
	if !enabled {
		return tracer{}, nil
	}
	t, err := tracing.Open(ctx, "lookupd", version, counts, log)
	if err != nil {
		return tracer{}, &usageError{err}
	}
	log.Info("traces are sent to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names")
	return tracer{t}, nil
}

// lookups is what the service tells of lookups; nil = nothing.
func (t tracer) lookups() lookupsvc.Tracer {
	if t.on == nil {
		return nil
	}
	return t.on
}

// walks is what the store tells of walks; nil = nothing.
func (t tracer) walks() store.Tracer {
	if t.on == nil {
		return nil
	}
	return t.on
}

// around is index, traced.
func (t tracer) around(index lookupsvc.Index) lookupsvc.Index {
	if t.on == nil {
		return index
	}
	return t.on.Index(index)
}

// interceptors belong outside of all others.
func (t tracer) interceptors() ([]grpc.UnaryServerInterceptor, []grpc.StreamServerInterceptor) {
	if t.on == nil {
		return nil, nil
	}
	unary, stream := t.on.Interceptors(healthService)
	return []grpc.UnaryServerInterceptor{unary}, []grpc.StreamServerInterceptor{stream}
}

// close sends the last spans, if the collector takes them soon.
func (t tracer) close(log *slog.Logger) {
	if t.on == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceGrace)
	defer cancel()
	if err := t.on.Close(ctx); err != nil {
		log.Warn("the last spans were not sent", "error", fmt.Sprint(err))
	}
}
