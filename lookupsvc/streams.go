package lookupsvc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// StreamCacheEvents has no source of changes to follow in this version.
func (s *Service) StreamCacheEvents(*pb.StreamEventsRequest, grpc.ServerStreamingServer[pb.CacheEvent]) error {
	return status.Error(codes.Unimplemented, "this lookup pod does not stream cache events; read GetCacheState instead")
}

// StreamMetrics has no registry to follow in this version.
func (s *Service) StreamMetrics(*pb.StreamMetricsRequest, grpc.ServerStreamingServer[pb.Metric]) error {
	return status.Error(codes.Unimplemented, "this lookup pod does not stream metrics; scrape /metrics on its HTTP port instead")
}
