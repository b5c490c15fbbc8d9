package doctor

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// probeTenant is set aside by the contract: a lookup for it touches no index.
const probeTenant = "inferencecache.io/probe"

func gatherGRPC(ctx context.Context, addrs []string, dial []grpc.DialOption) (out []GRPCFacts) {
	for _, addr := range addrs {
		out = append(out, askGRPC(ctx, addr, dial))
	}
	return out
}

func askGRPC(ctx context.Context, addr string, dial []grpc.DialOption) GRPCFacts {
	f := GRPCFacts{Addr: addr}
	conn, err := grpc.NewClient(addr, dial...)
	if err != nil {
		f.Err = err
		return f
	}
	defer func() { _ = conn.Close() }()
	health := healthpb.NewHealthClient(conn)
	for name, dst := range map[string]*string{"": &f.Health, pb.InferenceCache_ServiceDesc.ServiceName: &f.Service, "index": &f.Index} {
		resp, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: name})
		switch {
		case err == nil:
			*dst = resp.GetStatus().String()
		case status.Code(err) == codes.Unimplemented || status.Code(err) == codes.NotFound:
			*dst = "unknown"
		default:
			f.Err = err
			return f
		}
	}
	start := time.Now()
	reply, err := pb.NewInferenceCacheClient(conn).LookupRoute(ctx, &pb.LookupRouteRequest{TenantId: probeTenant, ModelId: "doctor", HashScheme: "doctor"})
	f.Took, f.Err = time.Since(start), err
	f.Refused = status.Code(err) == codes.Unauthenticated || status.Code(err) == codes.PermissionDenied
	f.Reason = reply.GetReasonCode()
	return f
}
