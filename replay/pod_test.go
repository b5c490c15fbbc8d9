package replay

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servePod starts the real service on an index behind a real connection.
func servePod(t *testing.T, index lookupsvc.Index) pb.InferenceCacheClient {
	t.Helper()
	service, err := lookupsvc.New(lookupsvc.Options{
		Index: index, Knobs: ranking.DefaultKnobs(), LookupTimeout: time.Minute,
	})
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterInferenceCacheServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
	return pb.NewInferenceCacheClient(conn)
}

func newModel() *rankingtest.Model {
	return rankingtest.New(func() int64 { return time.Now().UnixMilli() })
}

// testOptions are four small engines, one request at a time.
func testOptions() Options {
	return Options{
		Engines: 4, Blocks: 60, BlockTokens: 512,
		Tenant: "t", Model: "m", Scheme: "s", EnginePrefix: "e",
		Concurrency: 1, Pipeline: 4, Warmup: 4, Clear: true, RPCTimeout: time.Minute,
	}
}
