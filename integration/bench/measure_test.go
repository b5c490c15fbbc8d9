package bench

import (
	"context"
	"encoding/binary"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestMain(m *testing.M) { os.Exit(pod.Main(m)) }

const (
	tenant = "tenant-a"
	model  = "llama-3-70b"
	scheme = "vllm"
)

var ctx = context.Background()

// chain is n hashes of 8 bytes that look like fingerprints; no other seed has them.
func chain(seed, n int) [][]byte {
	hashes := make([][]byte, n)
	for i := range hashes {
		x := (uint64(seed)<<32 | uint64(i)) * 0x9E3779B97F4A7C15
		hashes[i] = binary.BigEndian.AppendUint64(nil, x^x>>29)
	}
	return hashes
}

func sixteens(n int) []int32 { return slices.Repeat([]int32{16}, n) }

func reportOf(replica string, hashes [][]byte) *ranking.Report {
	r := &ranking.Report{Scope: ranking.Scope{Tenant: tenant, Model: model}, Replica: replica, Scheme: scheme}
	for i, h := range hashes {
		r.Entries = append(r.Entries, ranking.Entry{Hash: h, Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1})
	}
	return r
}

func updateOf(replica string, hashes [][]byte) *pb.CacheStateUpdate {
	return &pb.CacheStateUpdate{
		TenantId: tenant, ModelId: model, ReplicaId: replica, HashScheme: scheme,
		Prefixes: []*pb.PrefixEntry{{BlockHashes: hashes, BlockTokenCounts: sixteens(len(hashes))}},
	}
}

func requestFor(hashes [][]byte) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{
		TenantId: tenant, ModelId: model, HashScheme: scheme,
		BlockHashes: hashes, BlockTokenCounts: sixteens(len(hashes)),
	}
}

func queryFor(hashes [][]byte) *ranking.Query {
	return &ranking.Query{
		Scope: ranking.Scope{Tenant: tenant, Model: model}, Space: ranking.Space{Scheme: scheme},
		Hashes: hashes, Tokens: sixteens(len(hashes)), TTLMS: time.Hour.Milliseconds(),
	}
}

// open is a store on its own connections.
func open(b *testing.B, url string, shards int) *store.Store {
	rdb, err := store.Dial(store.DialOptions{URL: url})
	require.NoError(b, err)
	b.Cleanup(func() { _ = rdb.Close() })
	s, err := store.Open(ctx, store.Options{Redis: rdb, Shards: shards})
	require.NoError(b, err)
	return s
}

// holders makes replicas hold chains, in parallel. One more serves the model and holds
// none of them: what all replicas have tells nothing, and would be no hint.
func holders(b *testing.B, s *store.Store, replicas int, chains ...[][]byte) {
	require.NoError(b, s.Report(ctx, reportOf("elsewhere", chain(-1, 1))))
	var writing sync.WaitGroup
	for r := range replicas {
		writing.Go(func() {
			for _, c := range chains {
				if err := s.Report(ctx, reportOf("engine-"+strconv.Itoa(r), c)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
}

// mainThread is the CPU time of the servers' main threads so far, µs.
func mainThread(b *testing.B, servers ...*redis.Client) (usec float64) {
	for _, c := range servers {
		info := c.Info(ctx, "cpu").Val()
		for _, part := range []string{"user", "sys"} {
			m := regexp.MustCompile(`used_cpu_` + part + `_main_thread:([0-9.]+)`).FindStringSubmatch(info)
			require.NotNil(b, m)
			seconds, err := strconv.ParseFloat(m[1], 64)
			require.NoError(b, err)
			usec += seconds * 1e6
		}
	}
	return usec
}

var callsOf = regexp.MustCompile(`cmdstat_[^:]+:calls=(\d+)`)

// commands is how many commands a server has run so far, whoever sent them.
func commands(b *testing.B, c *redis.Client) (n float64) {
	for _, m := range callsOf.FindAllStringSubmatch(c.Info(ctx, "commandstats").Val(), -1) {
		calls, err := strconv.Atoi(m[1])
		require.NoError(b, err)
		n += float64(calls)
	}
	return n
}

func quantile(all []time.Duration, of float64) float64 {
	slices.Sort(all)
	return float64(all[min(len(all)-1, int(of*float64(len(all))))].Nanoseconds()) / 1000
}

// hot waits until a pod answers the chain from memory.
func hot(b *testing.B, p *pod.Pod, req *pb.LookupRouteRequest, replicas int) {
	reads := func() float64 { return p.Metric("inferencecache_cache_reads_total") }
	rig.Eventually(b, 10*time.Second, "an answer from memory", func() error {
		before := reads()
		for range 20 {
			resp, err := p.Client.LookupRoute(ctx, req)
			if err != nil {
				return err
			}
			if len(resp.GetReplicaScores()) != replicas {
				return errCold
			}
		}
		if reads() != before {
			return errCold
		}
		return nil
	})
}

// crowd calls from several goroutines for a while, and returns how often.
func crowd(b *testing.B, d time.Duration, callers int, call func(caller int) error) float64 {
	counts := make([]int, callers)
	var calling sync.WaitGroup
	start := time.Now()
	for i := range callers {
		calling.Go(func() {
			for time.Since(start) < d {
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
				counts[i]++
			}
		})
	}
	calling.Wait()
	n := 0
	for _, c := range counts {
		n += c
	}
	return float64(n)
}

// sendOne reports one update in a stream of its own.
func sendOne(ctx context.Context, p *pod.Pod, u *pb.CacheStateUpdate) error {
	st, err := p.Client.ReportCacheState(ctx)
	if err != nil {
		return err
	}
	if err := st.Send(u); err != nil {
		return err
	}
	_, err = st.CloseAndRecv()
	return err
}

// scoresOfMatch are the scores of a PREFIX_MATCH; none of any other reason.
func scoresOfMatch(r *pb.LookupRouteResponse) []*pb.ReplicaScore {
	if r.GetReasonCode() != "PREFIX_MATCH" {
		return nil
	}
	return r.GetReplicaScores()
}
