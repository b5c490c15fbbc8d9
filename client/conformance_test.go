package client

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/integration/pod"
)

// packedClient sends in one piece every chain that fits.
type packedClient struct{ pb.InferenceCacheClient }

func (c packedClient) LookupRoute(ctx context.Context, req *pb.LookupRouteRequest, opts ...grpc.CallOption) (*pb.LookupRouteResponse, error) {
	packed, _ := packRequest(req)
	return c.InferenceCacheClient.LookupRoute(ctx, packed, opts...)
}

func (c packedClient) ReportCacheState(ctx context.Context, opts ...grpc.CallOption) (grpc.ClientStreamingClient[pb.CacheStateUpdate, pb.Ack], error) {
	s, err := c.InferenceCacheClient.ReportCacheState(ctx, opts...)
	return packedStream{s}, err
}

type packedStream struct {
	grpc.ClientStreamingClient[pb.CacheStateUpdate, pb.Ack]
}

func (s packedStream) Send(u *pb.CacheStateUpdate) error {
	packed, _ := packUpdate(u)
	return s.ClientStreamingClient.Send(packed)
}

// The scenarios of the contract, with every chain in one piece: a packed chain gets the
// answers of the plain one.
func TestPackedChainsGetThePlainOnesAnswers(t *testing.T) {
	var scenarios []conformance.Scenario
	for _, f := range []string{"rules", "worlds"} {
		s, err := conformance.Load(filepath.Join("..", "integration", "testdata", "conformance", f+".json"))
		require.NoError(t, err)
		scenarios = append(scenarios, s...)
	}
	policies := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(policies, "policies.yaml"), conformance.PolicyFile(scenarios), 0o600))
	p := pod.Start(t, "--policy-dir", policies, "--lookup-timeout", "30s")
	c := packedClient{p.Client}
	require.NoError(t, conformance.Report(t.Context(), c, conformance.Stranger()))
	for _, s := range scenarios {
		if s.Fresh {
			continue
		}
		require.NoError(t, s.Run(t.Context(), conformance.Target{Write: c, Read: c}), "%s: %s", s.Name, s.Why)
	}
}
