package lookupsvc

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// dial serves s over an in-memory connection.
func dial(t testing.TB, s *Service) pb.InferenceCacheClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(append(ServerOptions(),
		grpc.ChainUnaryInterceptor(s.UnaryRecovery()), grpc.ChainStreamInterceptor(s.StreamRecovery()))...)
	Register(server, s)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	conn, err := grpc.NewClient("passthrough:///memory",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.Stop()
		<-served
	})
	return pb.NewInferenceCacheClient(conn)
}

// send streams updates and returns what the call ended with.
func send(t testing.TB, c pb.InferenceCacheClient, updates ...*pb.CacheStateUpdate) (*pb.Ack, error) {
	t.Helper()
	stream, err := c.ReportCacheState(context.Background())
	require.NoError(t, err)
	for _, u := range updates {
		if stream.Send(u) != nil {
			break // the reason comes with the reply
		}
	}
	return stream.CloseAndRecv()
}
