package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector is an OTLP receiver that keeps what it gets; one that hangs answers nobody.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	url   string
	hangs chan struct{} // nil, or closed when the test ends
	asked chan struct{} // gets one for the first export

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
}

func startCollector(t *testing.T, hangs bool) *collector {
	c := &collector{asked: make(chan struct{}, 1), resource: map[string]string{}}
	if hangs {
		c.hangs = make(chan struct{})
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.url = "http://" + l.Addr().String()
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		if hangs {
			close(c.hangs)
		}
		server.Stop()
		serving.Wait()
	})
	return c
}

func (c *collector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	select {
	case c.asked <- struct{}{}:
	default:
	}
	if c.hangs != nil {
		<-c.hangs
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		for _, kv := range r.GetResource().GetAttributes() {
			c.resource[kv.GetKey()] = show(kv.GetValue())
		}
		for _, s := range r.GetScopeSpans() {
			c.spans = append(c.spans, s.GetSpans()...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// trace has the spans of a trace, parents before children, by name.
func (c *collector) trace(id string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			found = append(found, s)
		}
	}
	return found
}

func show(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonpb.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	default:
		return fmt.Sprint(v)
	}
}

// tree writes spans as an indented tree with the attributes that are asked for, in the
// order in which the spans began.
func tree(spans []*tracepb.Span, parent string, depth int) (lines []string) {
	for _, s := range spans {
		if hex.EncodeToString(s.GetParentSpanId()) != parent {
			continue
		}
		words := []string{strings.Repeat("  ", depth) + s.GetName()}
		for _, kv := range s.GetAttributes() {
			words = append(words, kv.GetKey()+"="+show(kv.GetValue()))
		}
		lines = append(append(lines, strings.Join(words, " ")), tree(spans, hex.EncodeToString(s.GetSpanId()), depth+1)...)
	}
	return lines
}
