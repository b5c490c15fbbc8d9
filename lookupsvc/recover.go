package lookupsvc

import (
	"context"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// panicked counts and logs a panic that was caught.
func (s *Service) panicked(where string, v any) {
	s.metrics.panics.Inc()
	s.sampler.error("panic caught in "+where, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
}

// UnaryRecovery turns a panic in any unary handler into INTERNAL. LookupRoute
// has its own answer to one and never gets here.
func (s *Service) UnaryRecovery() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if v := recover(); v != nil {
				s.panicked(info.FullMethod, v)
				err = status.Errorf(codes.Internal, "%s failed; the server's log has the reason", info.FullMethod)
			}
		}()
		return next(ctx, req)
	}
}

// StreamRecovery is UnaryRecovery for streams.
func (s *Service) StreamRecovery() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		defer func() {
			if v := recover(); v != nil {
				s.panicked(info.FullMethod, v)
				err = status.Errorf(codes.Internal, "%s failed; the server's log has the reason", info.FullMethod)
			}
		}()
		return next(srv, stream)
	}
}
