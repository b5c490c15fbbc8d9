package integration_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/integration/rig"
)

// settleLimit is how long a tier may take to be right again after a fault. It
// guards against hanging; nothing is measured with it.
const settleLimit = 60 * time.Second

const (
	model  = "m"
	scheme = "vllm"
)

// chain is n block hashes of 8 bytes that no other seed has.
func chain(seed, n int) [][]byte {
	var out [][]byte
	for i := range n {
		out = append(out, binary.BigEndian.AppendUint64(nil, uint64(seed)<<32|uint64(i)))
	}
	return out
}

func counts(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = 16
	}
	return out
}

func report(ctx context.Context, c pb.InferenceCacheClient, tenant, replica string, hashes [][]byte) error {
	return conformance.Report(ctx, c, &pb.CacheStateUpdate{
		TenantId: tenant, ModelId: model, HashScheme: scheme, ReplicaId: replica,
		Prefixes: []*pb.PrefixEntry{{BlockHashes: hashes, BlockTokenCounts: counts(len(hashes))}},
		Stats:    &pb.ReplicaStats{HitRate: 0.5},
	})
}

func lookup(ctx context.Context, c pb.InferenceCacheClient, tenant string, hashes [][]byte) (*pb.LookupRouteResponse, error) {
	return c.LookupRoute(ctx, &pb.LookupRouteRequest{
		TenantId: tenant, ModelId: model, HashScheme: scheme,
		BlockHashes: hashes, BlockTokenCounts: counts(len(hashes)),
	})
}

// answers is nil if a lookup has this reason and, for a match, this best replica.
func answers(t *testing.T, c pb.InferenceCacheClient, tenant string, hashes [][]byte, reason, best string) func() error {
	return func() error {
		r, err := lookup(t.Context(), c, tenant, hashes)
		if err != nil {
			return err
		}
		if r.GetReasonCode() != reason || best != "" && (len(r.GetReplicaScores()) == 0 || r.GetReplicaScores()[0].GetReplicaId() != best) {
			return fmt.Errorf("%s %v, want %s %s", r.GetReasonCode(), r.GetReplicaScores(), reason, best)
		}
		return nil
	}
}

// live takes a tenant through the life of a cached prefix. Each step must be
// right at once: it goes through one pod, and nothing is broken.
func live(t *testing.T, c pb.InferenceCacheClient, tenant string) {
	t.Helper()
	ctx := t.Context()
	hashes := chain(1, 20)
	require.NoError(t, report(ctx, c, tenant, "r1", hashes))
	require.NoError(t, report(ctx, c, tenant, "r2", hashes[:10]))
	require.NoError(t, answers(t, c, tenant, hashes, "PREFIX_MATCH", "r1")())
	state, err := c.GetCacheState(ctx, &pb.GetCacheStateRequest{TenantId: tenant, ModelId: model})
	require.NoError(t, err)
	require.EqualValues(t, 20, state.GetSummary().GetTotalPrefixes())
	require.Len(t, state.GetReplicas(), 2)

	require.NoError(t, conformance.Publish(ctx, c, &pb.CacheEvent{
		Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: tenant, ModelId: model, ReplicaId: "r1", PrefixHash: hashes[5],
	}))
	require.NoError(t, answers(t, c, tenant, hashes, "PREFIX_MATCH", "r2")(), "r1 lost its sixth block")

	for _, r := range []string{"r1", "r2"} {
		require.NoError(t, conformance.Publish(ctx, c, &pb.CacheEvent{
			Type: pb.CacheEvent_ALL_CLEARED, TenantId: tenant, ModelId: model, ReplicaId: r,
		}))
	}
	state, err = c.GetCacheState(ctx, &pb.GetCacheStateRequest{TenantId: tenant, ModelId: model})
	require.NoError(t, err)
	require.Zero(t, state.GetSummary().GetTotalPrefixes())
	require.Empty(t, state.GetReplicas())
	require.NoError(t, answers(t, c, tenant, hashes, "NO_HINT", "")(), "the index is empty everywhere")
}

// comesBack waits until reports are taken again and are hints.
func comesBack(t *testing.T, c pb.InferenceCacheClient, tenant string) {
	t.Helper()
	hashes := chain(2, 20)
	rig.Eventually(t, settleLimit, "a report being taken again", func() error {
		return report(t.Context(), c, tenant, "back", hashes)
	})
	rig.Eventually(t, settleLimit, "a hint from the new report", answers(t, c, tenant, hashes, "PREFIX_MATCH", "back"))
}

// failsOpen asks for tenants that the pod has never heard of, so that nothing in
// its memory can help: the reply must be no hint, and no error. That it comes
// while the fault lasts is what shows that it does not wait for its end.
func failsOpen(t *testing.T, c pb.InferenceCacheClient) {
	t.Helper()
	for i := range 10 {
		r, err := lookup(t.Context(), c, fmt.Sprintf("nobody-%d", i), chain(3, 4))
		require.NoError(t, err)
		require.Contains(t, []string{"NO_HINT", "TIMEOUT"}, r.GetReasonCode())
		require.Empty(t, r.GetReplicaScores())
	}
}

// refusesWrites checks that producers hear of what was not taken.
func refusesWrites(t *testing.T, c pb.InferenceCacheClient, tenant string) {
	t.Helper()
	calls := map[string]func() error{
		"a report": func() error { return report(t.Context(), c, tenant, "r1", chain(4, 4)) },
		"an event": func() error {
			return conformance.Publish(t.Context(), c, &pb.CacheEvent{
				Type: pb.CacheEvent_ALL_CLEARED, TenantId: tenant, ModelId: model, ReplicaId: "r1",
			})
		},
		"a state": func() error {
			_, err := c.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: tenant, ModelId: model})
			return err
		},
	}
	// Together, since each may wait for a reply for some seconds.
	var mu sync.Mutex
	errs := map[string]error{}
	var done sync.WaitGroup
	for what, call := range calls {
		done.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			errs[what] = err
		})
	}
	done.Wait()
	for what, err := range errs {
		require.Equal(t, codes.Unavailable, status.Code(err), "%s: %v", what, err)
		require.NotEmpty(t, status.Convert(err).Message(), what)
	}
}
