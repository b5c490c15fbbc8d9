package tracing

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
)

var _ lookupsvc.Tracer = (*Tracing)(nil)

// Lookup is the trace of the call that ctx belongs to; nil if it is not recorded.
func (t *Tracing) Lookup(ctx context.Context) lookupsvc.LookupTrace {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return nil
	}
	return &lookup{tracer: t.tracer, ctx: ctx, span: span}
}

// lookup writes what it hears of to the call's span and to children of it.
type lookup struct {
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
}

// ID is the trace's id, "" if the trace is not kept.
func (l *lookup) ID() string {
	if sc := l.span.SpanContext(); sc.IsSampled() {
		return sc.TraceID().String()
	}
	return ""
}

// part records a child after the fact.
func (l *lookup) part(name string, start, end time.Time, attrs ...attribute.KeyValue) {
	_, span := l.tracer.Start(l.ctx, name, trace.WithTimestamp(start), trace.WithAttributes(attrs...))
	span.End(trace.WithTimestamp(end))
}

func (l *lookup) Names(model, policy string) {
	l.span.SetAttributes(AttrModel.String(model), AttrPolicy.String(policy))
}

func (l *lookup) Input(start, end time.Time, input, rejected string) {
	if rejected != "" {
		l.part(SpanInput, start, end, AttrInput.String(input), AttrRejected.String(rejected))
		return
	}
	l.part(SpanInput, start, end, AttrInput.String(input))
}

func (l *lookup) Found(ev *ranking.Evidence) { l.span.SetAttributes(found(ev)...) }

func (l *lookup) Ranked(start, end time.Time, serving int) {
	l.part(SpanRank, start, end, AttrServing.Int(serving))
}

func (l *lookup) Answered(reason ranking.Reason, replicas int, matched int32) {
	l.span.SetAttributes(AttrReason.String(string(reason)), AttrReplicas.Int(replicas), AttrMatched.Int(int(matched)))
}

func found(ev *ranking.Evidence) []attribute.KeyValue {
	return []attribute.KeyValue{
		AttrAsked.Int(ev.Asked), AttrCached.Int(ev.Cached), AttrWalked.Int(ev.Walked), AttrDegraded.Bool(ev.Degraded),
		AttrPartial.Bool(ev.Partial),
	}
}

// Index records each Match of index, which is the pod's memory, as a SpanCache.
func (t *Tracing) Index(index lookupsvc.Index) lookupsvc.Index { return &tracedIndex{index, t.tracer} }

type tracedIndex struct {
	lookupsvc.Index
	tracer trace.Tracer
}

func (x *tracedIndex) Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return x.Index.Match(ctx, q, ev)
	}
	ctx, span := x.tracer.Start(ctx, SpanCache)
	defer span.End()
	err := x.Index.Match(ctx, q, ev)
	if err != nil {
		failed(span, err)
		return err
	}
	span.SetAttributes(found(ev)...)
	return nil
}

// Walk records a walk of the store as a SpanWalk of the lookup that ctx belongs to; it
// returns nil for one that is not recorded.
func (t *Tracing) Walk(ctx context.Context, shard, asked int) (done func(held int, err error)) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	//nolint:spancheck // done ends it, and the store always calls done
	_, span := t.tracer.Start(ctx, SpanWalk, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(AttrShard.Int(shard), AttrAsked.Int(asked)))
	return func(held int, err error) { //nolint:spancheck // as above
		span.SetAttributes(AttrHeld.Int(held))
		if err != nil {
			failed(span, err)
		}
		span.End()
	}
}

// failed marks a span. What an error of Redis says may quote the command, and with it
// hashes, so the text stays in the pod's log.
func failed(span trace.Span, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		span.SetStatus(codes.Error, "out of time")
	case errors.Is(err, context.Canceled):
		span.SetStatus(codes.Error, "canceled")
	default:
		span.SetStatus(codes.Error, "the index did not answer; the log has its words")
	}
}
