package integration_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/reference"
	"inferencecache.io/lookuptier/integration/rig"
)

// TestManyWritersThroughTwoPodsEndAsOneObviousIndex lets writers, each with a
// replica of its own, report, evict and clear the same few chains through two
// pods at once, and at the same time in the reference. What remains is then
// asked of both pods: the order of different replicas' writes must not matter.
func TestManyWritersThroughTwoPodsEndAsOneObviousIndex(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("K=%d", shards), func(t *testing.T) {
			t.Parallel()
			redis := rig.Cluster(t, 3).URL()
			flags := []string{"--redis", redis, "--shards", strconv.Itoa(shards), "--sweep-interval", "100ms", "--lookup-timeout", "30s"}
			pods := []*pod.Pod{pod.Start(t, flags...), pod.Start(t, flags...)}
			want := reference.Serve(t, nil)

			const writers, rounds = 8, 60
			var done sync.WaitGroup
			for w := range writers {
				done.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(shards), uint64(w)))
					for range rounds {
						if err := writeOnce(t, rng, "replica-"+strconv.Itoa(w), pods[rng.IntN(2)].Client, want); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			done.Wait()
			for seed := range chains {
				for _, adapter := range adapters {
					req := &pb.LookupRouteRequest{
						TenantId: "tenant", ModelId: model, HashScheme: scheme, AdapterId: adapter,
						BlockHashes: chain(seed, blocks), BlockTokenCounts: counts(blocks),
					}
					sameOnAll(t, pods, want, req)
					sameOnAll(t, pods, want, &pb.LookupRouteRequest{
						TenantId: "tenant", ModelId: model, HashScheme: scheme, AdapterId: adapter,
						PrefixHash: req.GetBlockHashes()[3], PrefixTokenCount: 64,
					})
				}
			}
			state := &pb.GetCacheStateRequest{TenantId: "tenant", ModelId: model}
			w, err := want.GetCacheState(t.Context(), state)
			require.NoError(t, err)
			for _, p := range pods {
				rig.Eventually(t, settleLimit, "the same state", func() error {
					got, err := p.Client.GetCacheState(t.Context(), state)
					if err != nil {
						return err
					}
					return conformance.CompareState(w, got)
				})
			}
		})
	}
}

const (
	chains = 6
	blocks = 24
)

var adapters = []string{"", "lora"}

// writeOnce does the same random thing to a replica in both tiers.
func writeOnce(t *testing.T, rng *rand.Rand, replica string, to ...pb.InferenceCacheClient) error {
	hashes := chain(rng.IntN(chains), blocks)
	adapter := adapters[rng.IntN(2)]
	var send func(pb.InferenceCacheClient) error
	switch n := rng.IntN(10); {
	case n < 7:
		hashes = hashes[:1+rng.IntN(blocks)]
		u := &pb.CacheStateUpdate{
			TenantId: "tenant", ModelId: model, HashScheme: scheme, ReplicaId: replica, AdapterId: adapter,
			Prefixes: []*pb.PrefixEntry{{BlockHashes: hashes, BlockTokenCounts: counts(len(hashes)), Tier: pb.CacheTier(rng.IntN(4))}},
			Stats:    &pb.ReplicaStats{HitRate: rng.Float32(), Pressure: rng.Float32() / 2},
		}
		send = func(c pb.InferenceCacheClient) error { return conformance.Report(t.Context(), c, proto.CloneOf(u)) }
	default:
		e := &pb.CacheEvent{
			Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: "tenant", ModelId: model, ReplicaId: replica,
			PrefixHash: hashes[rng.IntN(blocks)], AdapterId: adapter,
		}
		if n == 9 {
			e.Type, e.PrefixHash = pb.CacheEvent_ALL_CLEARED, nil
		}
		send = func(c pb.InferenceCacheClient) error { return conformance.Publish(t.Context(), c, proto.CloneOf(e)) }
	}
	for _, c := range to {
		if err := send(c); err != nil {
			return err
		}
	}
	return nil
}

// sameOnAll waits until every pod answers as the reference does.
func sameOnAll(t *testing.T, pods []*pod.Pod, want pb.InferenceCacheClient, req *pb.LookupRouteRequest) {
	t.Helper()
	for i, p := range pods {
		rig.Eventually(t, settleLimit, fmt.Sprintf("pod %d answering as the reference", i), func() error {
			w, err := want.LookupRoute(t.Context(), req)
			if err != nil {
				return err
			}
			got, err := p.Client.LookupRoute(t.Context(), req)
			if err != nil {
				return err
			}
			return conformance.CompareLookup(w, got)
		})
	}
}
