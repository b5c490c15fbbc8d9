package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// scope names this program's spans to OpenTelemetry.
const scope = "inferencecache.io/lookuptier/tracing"

// Tracing records calls. Its methods are safe for concurrent use.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// Open starts to send spans to the collector that OpenTelemetry's environment variables
// name; see Enabled. It does not wait for the collector: one that is away, slow or hangs
// costs spans and nothing else, for spans wait in a queue that is bounded and drop
// when it is full. service and version describe the process unless the environment does.
// It sets OpenTelemetry's global error handler and logger. Close it.
func Open(ctx context.Context, service, version string, counts *Counts, log *slog.Logger) (*Tracing, error) {
	speakThrough(log)
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	who, err := describe(ctx, service, version)
	if err != nil {
		return nil, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return Over(sdktrace.NewTracerProvider(
		sdktrace.WithResource(who),
		sdktrace.WithSpanProcessor(&counting{counts: counts,
			SpanProcessor: sdktrace.NewBatchSpanProcessor(&countingExporter{SpanExporter: exporter, counts: counts})}),
	)), nil
}

// Over records with a provider that the caller made; Close ends it.
func Over(provider *sdktrace.TracerProvider) *Tracing {
	return &Tracing{provider: provider, tracer: provider.Tracer(scope)}
}

// Close sends what is queued, and gives up on it when ctx ends.
func (t *Tracing) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// describe is the resource: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
func describe(ctx context.Context, service, version string) (*resource.Resource, error) {
	ours := resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.version", version))
	env, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	return resource.Merge(ours, env)
}

// speakThrough lets OpenTelemetry's own troubles appear in the log, a few at a time.
func speakThrough(log *slog.Logger) {
	limit := rate.NewLimiter(rate.Every(10*time.Second), 3)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if limit.Allow() {
			log.Warn("traces are lost; lookups are not affected", "error", err)
		}
	}))
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
}

// Counts are the metrics of sending spans.
type Counts struct{ ended, exported, failed prometheus.Counter }

// NewCounts registers them.
func NewCounts(reg prometheus.Registerer) *Counts {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "inferencecache", Name: "trace_spans_total",
		Help: "Sampled spans: that ended, that the collector took, that it did not take."}, []string{"state"})
	reg.MustRegister(v)
	return &Counts{v.WithLabelValues("ended"), v.WithLabelValues("exported"), v.WithLabelValues("failed")}
}

// counting counts what goes into the queue, or past it when it is full.
type counting struct {
	sdktrace.SpanProcessor
	counts *Counts
}

func (c *counting) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.counts.ended.Inc()
	}
	c.SpanProcessor.OnEnd(s)
}

type countingExporter struct {
	sdktrace.SpanExporter
	counts *Counts
}

func (c *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.counts.failed.Add(float64(len(spans)))
		return err
	}
	c.counts.exported.Add(float64(len(spans)))
	return nil
}
