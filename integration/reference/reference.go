// Package reference serves the lookup service on the obvious index of
// rankingtest, in memory: what a real tier is compared with.
package reference

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

// Serve runs the service until the test ends. A nil set has default policies for everyone.
func Serve(t testing.TB, set *policies.Set) pb.InferenceCacheClient {
	t.Helper()
	svc, err := lookupsvc.New(lookupsvc.Options{
		Index:         rankingtest.New(func() int64 { return time.Now().UnixMilli() }),
		Policy:        set.For,
		Knobs:         ranking.DefaultKnobs(),
		LookupTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	pb.RegisterInferenceCacheServer(server, svc)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:reference", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("reference server: %v", err)
		}
	})
	return pb.NewInferenceCacheClient(conn)
}
