package store_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// BenchmarkMatch: a whole Match of 256 blocks that 8 replicas hold, with and without
// the memory, on a real Redis.
func BenchmarkMatch(b *testing.B) {
	for _, shards := range []int{1, 4} {
		p := newPod(b, urlOf(rig.Standalone(b).Addr()), shards, store.CachedOptions{})
		var chain []string
		for i := range 256 {
			chain = append(chain, fmt.Sprintf("%08d", i))
		}
		for i := range 8 {
			require.NoError(b, p.Report(ctx, report(fmt.Sprint("engine-", i), vllm, 0, chain...)))
		}
		q := query(vllm, chain...)
		p.warm(q)
		for name, match := range map[string]func(*ranking.Evidence) error{
			"cached":  func(ev *ranking.Evidence) error { return p.Match(ctx, q, ev) },
			"through": func(ev *ranking.Evidence) error { return p.Store.Match(ctx, q, ev) },
		} {
			b.Run(fmt.Sprintf("shards=%d/%s", shards, name), func(b *testing.B) {
				ev := new(ranking.Evidence)
				b.ReportAllocs()
				for b.Loop() {
					if err := match(ev); err != nil || len(ev.Runs) != 8 || ev.Runs[0].Blocks != 256 {
						b.Fatalf("%v %+v", err, ev)
					}
				}
			})
		}
	}
}

// BenchmarkOwnWrite: a report of 16 blocks, through the store alone and through a pod
// that remembers the partition and so must be sure to have it, turn by turn.
func BenchmarkOwnWrite(b *testing.B) {
	p := newPod(b, urlOf(rig.Standalone(b).Addr()), 1, store.CachedOptions{})
	var chain []string
	for i := range 16 {
		chain = append(chain, fmt.Sprintf("%08d", i))
	}
	r := report("a", vllm, 0, chain...)
	require.NoError(b, p.Report(ctx, r))
	p.warm(query(vllm, chain...))
	var alone, remembered []time.Duration
	for b.Loop() {
		start := time.Now()
		require.NoError(b, p.Store.Report(ctx, r))
		middle := time.Now()
		require.NoError(b, p.Report(ctx, r))
		alone, remembered = append(alone, middle.Sub(start)), append(remembered, time.Since(middle))
	}
	slices.Sort(alone)
	slices.Sort(remembered)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(alone[len(alone)/2].Nanoseconds())/1000, "alone-p50-µs")
	b.ReportMetric(float64(remembered[len(remembered)/2].Nanoseconds())/1000, "remembered-p50-µs")
	b.ReportMetric(float64(remembered[len(remembered)*99/100].Nanoseconds())/1000, "remembered-p99-µs")
}

// BenchmarkVisibility: how long after a report through one pod returned another pod's
// lookup sees it, while further reports keep the log busy.
func BenchmarkVisibility(b *testing.B) {
	url := urlOf(rig.Standalone(b).Addr())
	here, there := newPod(b, url, 1, store.CachedOptions{}), newPod(b, url, 1, store.CachedOptions{})
	require.NoError(b, there.Report(ctx, report("a", vllm, 0, "b0")))
	here.warm(query(vllm, "b0"))

	var stop atomic.Bool
	var busy sync.WaitGroup
	var reports atomic.Int64
	const rate, writers = 5000, 8
	for w := range writers {
		busy.Go(func() {
			var chain []string
			for i := range 16 {
				chain = append(chain, fmt.Sprintf("%d/%d", w, i))
			}
			tick := time.NewTicker(time.Second * writers / rate)
			defer tick.Stop()
			for !stop.Load() {
				<-tick.C
				if err := there.Store.Report(ctx, report(fmt.Sprint("writer-", w), vllm, 0, chain...)); err != nil {
					return
				}
				reports.Add(1)
			}
		})
	}
	var took []time.Duration
	began := time.Now()
	for b.Loop() {
		chain := fmt.Sprint("probe ", len(took))
		q := query(vllm, chain)
		if got, _ := here.runs(q); len(got) != 0 { // remembered as absent
			b.Fatal("seen too early")
		}
		if err := there.Store.Report(ctx, report("a", vllm, 0, chain)); err != nil {
			b.Fatal(err)
		}
		written := time.Now()
		for {
			if got, _ := here.runs(q); len(got) == 1 {
				break
			}
			runtime.Gosched()
		}
		took = append(took, time.Since(written))
	}
	elapsed := time.Since(began).Seconds()
	stop.Store(true)
	busy.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(reports.Load())/elapsed, "reports/s")
}
