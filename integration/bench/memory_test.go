package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// BenchmarkPodMemory: what a remembered block costs a pod, in chains of 256 blocks with
// hashes of 8 bytes: by the runtime's account of the heap, and by the memory's own, which
// --cache-bytes bounds.
func BenchmarkPodMemory(b *testing.B) {
	for _, replicas := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(replicas, " holders"), func(b *testing.B) {
			const blocks = 256
			chains := min(400, 3200/replicas)
			s := open(b, rig.Standalone(b).URL(), 1)
			all := make([][][]byte, chains)
			for i := range all {
				all[i] = chain(i, blocks)
			}
			holders(b, s, replicas, all...)
			memory, err := store.NewCached(s, store.CachedOptions{Bytes: 1 << 30})
			require.NoError(b, err)
			b.Cleanup(memory.Close)
			before := heap()
			start := time.Now()
			for _, hashes := range all {
				rig.Eventually(b, 30*time.Second, "a chain remembered", func() error {
					ev := new(ranking.Evidence)
					if err := memory.Match(ctx, queryFor(hashes), ev); err != nil {
						return err
					}
					if ev.Walked > 0 {
						return errCold
					}
					return nil
				})
			}
			filled := time.Since(start)
			used := heap() - before
			own, remembered := gauge(b, memory, "inferencecache_cache_bytes"), gauge(b, memory, "inferencecache_cache_blocks")
			require.GreaterOrEqual(b, remembered, float64(chains*blocks))
			time.Sleep(max(0, time.Second-filled)) // so that one run is enough
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(used)/remembered, "heap-B/block")
			b.ReportMetric(own/remembered, "own-account-B/block")
			b.ReportMetric(remembered, "blocks")
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func gauge(b *testing.B, c prometheus.Collector, name string) float64 {
	r := prometheus.NewRegistry()
	require.NoError(b, r.Register(c))
	families, err := r.Gather()
	require.NoError(b, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	b.Fatalf("no metric %s", name)
	return 0
}
