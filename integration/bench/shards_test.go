package bench

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// BenchmarkShards: K shards of one (tenant, model) on a Cluster of three masters: holds a
// second that 16 writers report through the store, 256 new blocks a report; and a cold
// lookup of a chain of 256 blocks that 8 replicas hold, at a pod's memory that follows all
// shards. Writers, memory and the three masters share the machine's cores: redis-cores
// says how many of them the masters used meanwhile, busiest-node the busiest alone.
func BenchmarkShards(b *testing.B) {
	for _, shards := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("K=", shards), func(b *testing.B) { benchShards(b, shards) })
	}
}

func benchShards(b *testing.B, shards int) {
	const writers, blocks, chains = 16, 256, 200
	set := rig.Cluster(b, 3)
	s := open(b, set.URL(), shards)
	var nodes []*redis.Client
	for _, n := range set.Nodes {
		nodes = append(nodes, n.Client())
	}
	var seed atomic.Int64
	seed.Store(1 << 20)
	used := func() (all []float64) {
		for _, n := range nodes {
			all = append(all, mainThread(b, n))
		}
		return all
	}
	before, start := used(), time.Now()
	reports := crowd(b, 2*time.Second, writers, func(writer int) error {
		return s.Report(ctx, reportOf("writer-"+strconv.Itoa(writer), chain(int(seed.Add(1)), blocks)))
	})
	elapsed := time.Since(start)
	busiest, sum := 0.0, 0.0
	for i, usec := range used() {
		share := (usec - before[i]) / float64(elapsed.Microseconds())
		busiest, sum = max(busiest, share), sum+share
	}

	all := make([][][]byte, chains)
	for i := range all {
		all[i] = chain(i, blocks)
	}
	holders(b, s, 8, all...)
	memory, err := store.NewCached(s, store.CachedOptions{})
	require.NoError(b, err)
	b.Cleanup(memory.Close)
	ask := func(hashes [][]byte) (time.Duration, *ranking.Evidence) {
		q, ev := queryFor(hashes), new(ranking.Evidence)
		start := time.Now()
		require.NoError(b, memory.Match(ctx, q, ev))
		took := time.Since(start)
		require.Len(b, ev.Runs, 8)
		return took, ev
	}
	rig.Eventually(b, 30*time.Second, "an answer from memory", func() error {
		if _, ev := ask(all[0]); ev.Walked > 0 {
			return errCold
		}
		return nil
	})
	var cold, warm []time.Duration
	for _, hashes := range all[1:] {
		took, ev := ask(hashes)
		require.Positive(b, ev.Walked)
		cold = append(cold, took)
	}
	for _, hashes := range all[1:] {
		took, ev := ask(hashes)
		require.Zero(b, ev.Walked)
		warm = append(warm, took)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(reports*blocks/elapsed.Seconds(), "holds/s")
	b.ReportMetric(busiest, "busiest-node")
	b.ReportMetric(sum, "redis-cores")
	b.ReportMetric(quantile(cold, .5), "cold-p50-µs")
	b.ReportMetric(quantile(warm, .5), "hot-p50-µs")
}
