package conformance_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

// TestTheObviousIndexConforms holds the service and the slow model against the
// scenarios: a scenario that fails here and nowhere else is the model's fault,
// one that fails everywhere is the service's or the scenario's.
func TestTheObviousIndexConforms(t *testing.T) {
	for _, file := range []string{"cold-start", "rules", "worlds"} {
		t.Run(file, func(t *testing.T) {
			scenarios, err := conformance.Load("../testdata/conformance/" + file + ".json")
			require.NoError(t, err)
			require.NotEmpty(t, scenarios)
			set, err := policies.Parse(policies.Source{Name: file, Data: conformance.PolicyFile(scenarios)})
			require.NoError(t, err)
			c := serveModel(t, set)
			if !scenarios[0].Fresh {
				require.NoError(t, conformance.Report(t.Context(), c, conformance.Stranger()))
			}
			for _, s := range scenarios {
				t.Run(s.Name, func(t *testing.T) {
					require.NoError(t, s.Run(t.Context(), conformance.Target{Write: c, Read: c}), s.Why)
				})
			}
		})
	}
}

func serveModel(t *testing.T, set *policies.Set) pb.InferenceCacheClient {
	t.Helper()
	svc, err := lookupsvc.New(lookupsvc.Options{
		Index:         rankingtest.New(func() int64 { return time.Now().UnixMilli() }),
		Policy:        set.For,
		Knobs:         ranking.DefaultKnobs(),
		LookupTimeout: 30 * time.Second,
	})
	require.NoError(t, err)
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	pb.RegisterInferenceCacheServer(server, svc)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:model", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		require.NoError(t, <-served)
	})
	return pb.NewInferenceCacheClient(conn)
}
