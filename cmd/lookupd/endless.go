package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// endless ends the calls that have no end of their own when the pod drains: a watch of
// health or a stream of events would otherwise hold every drain up to its limit.
type endless struct {
	ctx  context.Context
	over context.CancelFunc
}

func newEndless() *endless {
	e := &endless{}
	e.ctx, e.over = context.WithCancel(context.Background())
	return e
}

var endlessCalls = map[string]bool{
	healthpb.Health_Watch_FullMethodName:               true,
	pb.InferenceCache_StreamCacheEvents_FullMethodName: true,
	pb.InferenceCache_StreamMetrics_FullMethodName:     true,
}

// end ends them with UNAVAILABLE, which tells callers to go elsewhere. Calls that come
// later end at once.
func (e *endless) end() { e.over() }

func (e *endless) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !endlessCalls[info.FullMethod] {
		return next(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	err := next(srv, &boundedStream{stream, ctx})
	if err != nil && e.ctx.Err() != nil && stream.Context().Err() == nil {
		return status.Error(codes.Unavailable, "this pod is shutting down: open the stream at another")
	}
	return err
}

type boundedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *boundedStream) Context() context.Context { return s.ctx }
