package soak

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// settleLimit is within what the index must be the engines' caches.
const settleLimit = time.Minute

// settle waits for that and says how long it took.
func (s *tier) settle() time.Duration {
	s.t.Helper()
	began := time.Now()
	rig.Eventually(s.t, settleLimit, "the index being the engines' caches", s.compare)
	return time.Since(began)
}

func (s *tier) compare() error {
	index, err := s.index()
	if err != nil {
		return err
	}
	if len(index) > len(s.producers()) {
		return fmt.Errorf("%d replicas in the index of %d", len(index), len(s.producers()))
	}
	for _, p := range s.producers() {
		want, got := p.holds(s.world), index[p.name()]
		wrong, missing := 0, 0
		for hash, tokens := range want {
			if at, ok := got[hash]; !ok {
				missing++
			} else if at != tokens {
				wrong++
			}
		}
		for hash := range got {
			if _, ok := want[hash]; !ok {
				wrong++
			}
		}
		if wrong+missing > 0 {
			return fmt.Errorf("%s: %d wrong, %d missing of %d", p.name(), wrong, missing, len(want))
		}
	}
	return nil
}

// index reads what lies in Redis without the project's readers, as docs/data-model.md has it: replica →
// hash → tokens. It is an error if a serving count is not what a recount says.
func (s *tier) index() (map[string]map[string]uint32, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all := map[string]map[string]uint32{}
	for shard := range s.shards {
		k := store.KeysOf(ranking.Scope{Tenant: tenant, Model: model}, shard)
		replicas, err := s.rdb.HGetAll(ctx, k.Replicas()).Result()
		if err != nil {
			return nil, err
		}
		serving, err := s.rdb.HGetAll(ctx, k.Serving()).Result()
		if err != nil {
			return nil, err
		}
		blocks, err := s.rdb.HGetAll(ctx, k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: scheme}))).Result()
		if err != nil {
			return nil, err
		}
		counts, names := map[string]int{}, map[string]string{}
		for field, count := range serving {
			if counts[field[2:]], err = strconv.Atoi(count); err != nil {
				return nil, err
			}
		}
		for id, rec := range replicas {
			names[rec[:3]] = id
			all[id] = map[string]uint32{}
		}
		recount := map[string]int{}
		for hash, value := range blocks {
			for ; len(value) >= 12; value = value[12:] {
				number := value[:3]
				if _, live := counts[number]; !live {
					continue // of a retired replica, until it is swept
				}
				recount[number]++
				if id, ok := names[number]; ok {
					all[id][hash] = binary.BigEndian.Uint32([]byte(value[8:12])) & 0xffffff
				}
			}
		}
		for number, count := range counts {
			if recount[number] != count {
				return nil, fmt.Errorf("shard %d: %s serves %d blocks by its count and %d by a recount", shard, names[number], count, recount[number])
			}
		}
	}
	return all, nil
}

func (s *tier) heldBlocks() (n int) {
	for _, p := range s.producers() {
		n += len(p.holds(s.world))
	}
	return n
}

// wantRightAnswers asks every pod for every prompt: each replica with all the leading blocks that it has, and
// nothing that it does not have.
func (s *tier) wantRightAnswers() {
	s.t.Helper()
	holds, distinct := map[string]map[string]uint32{}, map[string]bool{}
	for _, p := range s.producers() {
		holds[p.name()] = p.holds(s.world)
		for hash := range holds[p.name()] {
			distinct[hash] = true
		}
	}
	for i, p := range s.pods {
		conn, err := grpc.NewClient(p.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(s.t, err)
		defer conn.Close()
		c := pb.NewInferenceCacheClient(conn)
		for n := range s.world.prompts {
			rig.Eventually(s.t, settleLimit, fmt.Sprintf("pod %d knowing prompt %d", i, n), func() error {
				return answersRight(s.t.Context(), c, &s.world.prompts[n], holds)
			})
		}
		state, err := c.GetCacheState(s.t.Context(), &pb.GetCacheStateRequest{TenantId: tenant, ModelId: model})
		require.NoError(s.t, err)
		require.EqualValues(s.t, len(distinct), state.GetSummary().GetTotalPrefixes(), "prefixes of pod %d", i)
	}
}

func answersRight(ctx context.Context, c pb.InferenceCacheClient, p *prompt, holds map[string]map[string]uint32) error {
	req := &pb.LookupRouteRequest{TenantId: tenant, ModelId: model, HashScheme: scheme, BlockHashes: p.hashes,
		BlockTokenCounts: slices.Repeat([]int32{engineBlock}, len(p.hashes))}
	r, err := c.LookupRoute(ctx, req)
	if err != nil {
		return err
	}
	want := map[string]int32{}
	for replica, has := range holds {
		for _, h := range p.hashes {
			if _, ok := has[string(h)]; !ok {
				break
			}
			want[replica] += engineBlock
		}
	}
	if r.GetReasonCode() != "PREFIX_MATCH" && len(want) > 0 {
		return fmt.Errorf("%s, want %v", r.GetReasonCode(), want)
	}
	if r.GetReasonCode() == "PREFIX_MATCH" {
		if len(r.GetReplicaScores()) != len(want) {
			return fmt.Errorf("%v, want %v", r.GetReplicaScores(), want)
		}
		for _, got := range r.GetReplicaScores() {
			if want[got.GetReplicaId()] != got.GetMatchedTokens() {
				return fmt.Errorf("%v, want %v", got, want)
			}
		}
	}
	return nil
}
