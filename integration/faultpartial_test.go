package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// A pod that follows a partition knows who serves it, but not all of its blocks. While
// Redis is away it must not say of a block that it never read that nobody holds it.
func TestAPodThatCannotAskDoesNotSayThatNobodyHoldsIt(t *testing.T) {
	t.Parallel()
	redis := rig.Standalone(t)
	a := pod.Start(t, "--redis", redis.URL())
	b := pod.Start(t, "--redis", redis.URL())
	known, unread := chain(1, 20), chain(2, 20)
	for _, replica := range []string{"r1", "r2", "r3"} {
		require.NoError(t, report(t.Context(), a.Client, "tenant", replica, known[:10]))
	}
	require.NoError(t, report(t.Context(), a.Client, "tenant", "r1", known))
	require.NoError(t, report(t.Context(), a.Client, "tenant", "r2", unread))
	// b follows the partition once it answers from memory.
	rig.Eventually(t, settleLimit, "a lookup that asks Redis nothing", func() error {
		before := b.Metric("inferencecache_cache_reads_total")
		require.NoError(t, answers(t, b.Client, "tenant", known, "PREFIX_MATCH", "r1")())
		if b.Metric("inferencecache_cache_reads_total") > before {
			return errors.New("Redis was asked")
		}
		return nil
	})
	redis.Pause()
	defer redis.Resume()
	require.NoError(t, answers(t, b.Client, "tenant", known, "PREFIX_MATCH", "r1")(), "what it knows it answers")
	for range 3 {
		r, err := lookup(t.Context(), b.Client, "tenant", unread)
		require.NoError(t, err)
		require.Contains(t, []string{"NO_HINT", "TIMEOUT"}, r.GetReasonCode(), "a chain that r2 holds")
		r, err = exactLookup(t.Context(), b.Client, "tenant", unread[19])
		require.NoError(t, err)
		require.Contains(t, []string{"NO_HINT", "TIMEOUT"}, r.GetReasonCode(), "a hash that r2 holds")
	}
	require.Positive(t, b.Metric("inferencecache_lookup_partial_total"))
}

func exactLookup(ctx context.Context, c pb.InferenceCacheClient, tenant string, hash []byte) (*pb.LookupRouteResponse, error) {
	return c.LookupRoute(ctx, &pb.LookupRouteRequest{
		TenantId: tenant, ModelId: model, HashScheme: scheme, PrefixHash: hash, PrefixTokenCount: 320,
	})
}
