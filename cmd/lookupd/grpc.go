package main

import (
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // callers may compress
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"inferencecache.io/lookuptier/lookupsvc"
)

// newGRPC makes the server with all of its services.
func newGRPC(c *config, s *lookupsvc.Service, ready *readiness, t tracer, e *endless, sec *security) *grpc.Server {
	unary, stream := t.interceptors()
	unaryAuth, streamAuth := sec.interceptors()
	server := grpc.NewServer(append(append(lookupsvc.ServerOptions(), sec.serverOptions()...),
		grpc.MaxConcurrentStreams(4096),
		grpc.ConnectionTimeout(20*time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             10 * time.Second,
			PermitWithoutStream: true, // gateways keep idle connections warm
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    30 * time.Second, // a peer that vanished is noticed
			Timeout: 10 * time.Second,
			// 0 is the library's "never" too. A long report stream gets its time to end.
			MaxConnectionAge:      time.Duration(c.MaxConnAge),
			MaxConnectionAgeGrace: 5 * time.Minute,
		}),
		grpc.ChainUnaryInterceptor(append(append(unary, s.UnaryRecovery()), unaryAuth...)...),
		grpc.ChainStreamInterceptor(append(append(stream, e.intercept, s.StreamRecovery()), streamAuth...)...),
	)...)
	lookupsvc.Register(server, s)
	healthpb.RegisterHealthServer(server, ready.health)
	reflection.Register(server)
	return server
}
