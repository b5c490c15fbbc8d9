package lookupsvc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc/wire"
)

// ServerOptions are those that a server of the service needs: the codec that
// LookupRoute is fast with, and the largest message. A server without them works,
// more slowly and with gRPC's own limit of 4 MiB.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(wire.Codec{}), grpc.MaxRecvMsgSize(MaxMessageBytes)}
}

// Register adds s to a server. It serves what pb.RegisterInferenceCacheServer would;
// LookupRoute's requests live in memory that is used again when the handler and all
// interceptors have returned, so none of them may keep one.
func Register(server grpc.ServiceRegistrar, s *Service) {
	server.RegisterService(&serviceDesc, s)
}

var serviceDesc = describeService()

func describeService() grpc.ServiceDesc {
	d := pb.InferenceCache_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "LookupRoute" {
			d.Methods[i].Handler = handleLookupRoute
		}
	}
	return d
}

// handleLookupRoute is the generated handler with a request that goes back to where
// it came from. One that the index may still read, because the budget ran out under
// it, does not: the garbage collector has it when nobody reads it any more.
//
//nolint:revive // gRPC has the context second
func handleLookupRoute(srv any, ctx context.Context, decode func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
	s := srv.(*Service)
	r := wire.TakeRequest()
	if err := decode(r); err != nil {
		r.Release()
		// gRPC ends the context of an undecodable call too, so the status alone tells.
		if code := status.Code(err); code == codes.Canceled || code == codes.DeadlineExceeded {
			return nil, err // the caller left before its message was here
		}
		// There is nothing to answer: the caller gets gRPC's INTERNAL.
		s.metrics.lookupRejected[flawUndecodable].Inc()
		s.sampler.warn("lookup rejected: it is no LookupRouteRequest", "error", err, "do", flawUndecodable.remedy())
		return nil, err
	}
	req := &r.LookupRouteRequest
	if around == nil {
		resp, done := s.route(ctx, req)
		if done {
			r.Release()
		}
		return resp, nil
	}
	done := true // an interceptor that answers by itself has not passed req on
	resp, err := around(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: pb.InferenceCache_LookupRoute_FullMethodName},
		func(ctx context.Context, req any) (any, error) {
			done = false
			resp, returned := s.route(ctx, req.(*pb.LookupRouteRequest))
			done = returned
			return resp, nil
		})
	if done {
		r.Release()
	}
	return resp, err
}
