package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Interceptors record the calls of one gRPC service, and no other: health checks are
// not worth a trace. They belong outside of all others. A call continues the trace that
// its caller names in the traceparent metadata (W3C Trace Context).
//
// They are interceptors because a stats handler, which is the other way in, is called
// seven times a call and has each message described to it; docs/decisions/0051 has figures.
func (t *Tracing) Interceptors(service string) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	prefix := "/" + service + "/"
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if !strings.HasPrefix(info.FullMethod, prefix) {
			return next(ctx, req)
		}
		ctx, span := t.call(ctx, info.FullMethod)
		defer span.End()
		resp, err := next(ctx, req)
		ended(span, err)
		return resp, err
	}
	stream := func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if !strings.HasPrefix(info.FullMethod, prefix) {
			return next(srv, s)
		}
		ctx, span := t.call(s.Context(), info.FullMethod)
		defer span.End()
		err := next(srv, &tracedStream{s, ctx})
		ended(span, err)
		return err
	}
	return unary, stream
}

type tracedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *tracedStream) Context() context.Context { return s.ctx }

func (t *Tracing) call(ctx context.Context, fullMethod string) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, incoming{ctx})
	name := fullMethod[1:]
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		service, method, _ := strings.Cut(name, "/")
		span.SetAttributes(attrSystem.String("grpc"), attrService.String(service), attrMethod.String(method))
	}
	return ctx, span
}

func ended(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	code := status.Code(err)
	span.SetAttributes(attrStatus.Int(int(code)))
	switch code {
	case grpccodes.Unknown, grpccodes.DeadlineExceeded, grpccodes.Unimplemented, grpccodes.Internal, grpccodes.Unavailable, grpccodes.DataLoss:
		// The server's fault.
		span.SetStatus(codes.Error, code.String())
	default: // the caller knows better what to make of it
	}
}

// incoming reads the metadata of a call without copying it.
type incoming struct{ ctx context.Context }

func (c incoming) Get(key string) string {
	if v := metadata.ValueFromIncomingContext(c.ctx, key); len(v) > 0 {
		return v[0]
	}
	return ""
}

func (incoming) Set(string, string) {}

func (incoming) Keys() []string { return []string{"traceparent", "tracestate"} }
