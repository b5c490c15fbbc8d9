package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// BenchmarkVisibility: from the Ack of a report through pod A until pod B, asked every
// 200 µs or so, answers with it from memory: in peace, and while 8 producers send 5,000
// reports a second of 16 blocks each through pod A. All of them, both pods and
// Redis share the machine. applied-in is how much of what pod B read of the log was that young
// when its memory had it, by its own metric: the rest of the time is the probe's own call.
func BenchmarkVisibility(b *testing.B) {
	for _, rate := range []int{0, 5000} {
		b.Run(fmt.Sprint(rate, " reports a second"), func(b *testing.B) { benchVisibility(b, rate) })
	}
}

func benchVisibility(b *testing.B, rate int) {
	const producers, probes, blocks = 8, 400, 16
	srv := rig.Standalone(b)
	s := open(b, srv.URL(), 1)
	holders(b, s, 8, chain(0, blocks))
	here, there := pod.Start(b, "--redis", srv.URL()), pod.Start(b, "--redis", srv.URL())
	for _, p := range []*pod.Pod{here, there} {
		hot(b, p, requestFor(chain(0, blocks)), 8)
	}
	load, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	var sent atomic.Int64
	start := time.Now()
	for i := range producers {
		if rate > 0 {
			busy.Go(func() { produce(load, b, here, i, time.Second*producers/time.Duration(rate), &sent) })
		}
	}
	var took []time.Duration
	for i := range probes {
		probe := chain(1_000_000+i, 8) // long enough for the least match that a policy lets pass
		req := requestFor(probe)
		resp, err := there.Client.LookupRoute(ctx, req) // remembered as absent
		require.NoError(b, err)
		require.Empty(b, scoresOfMatch(resp), "seen before it was written")
		require.NoError(b, sendOne(ctx, here, updateOf("engine-0", probe)))
		written := time.Now()
		for {
			resp, err := there.Client.LookupRoute(ctx, req)
			require.NoError(b, err)
			if len(scoresOfMatch(resp)) == 1 {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
		took = append(took, time.Since(written))
		time.Sleep(4 * time.Millisecond) // at another phase of the follower each time
	}
	stop()
	busy.Wait()
	elapsed := time.Since(start).Seconds()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(sent.Load())/elapsed, "reports/s")
	b.ReportMetric(quantile(took, .5)/1000, "p50-ms")
	b.ReportMetric(quantile(took, .99)/1000, "p99-ms")
	b.ReportMetric(quantile(took, 1)/1000, "max-ms")
	readings := there.Metric("inferencecache_log_lag_seconds_count")
	for _, within := range []string{"0.005", "0.02"} {
		b.ReportMetric(100*there.Metric("inferencecache_log_lag_seconds_bucket", `le="`+within+`"`)/readings, "%applied-in-"+within+"s")
	}
}

// produce sends a report whenever one is due, 32 of them in a stream before its Ack is awaited.
func produce(ctx context.Context, b *testing.B, p *pod.Pod, producer int, each time.Duration, sent *atomic.Int64) {
	const together = 32
	start := time.Now()
	for n := 0; ctx.Err() == nil; {
		st, err := p.Client.ReportCacheState(context.WithoutCancel(ctx))
		if err != nil {
			b.Error(err)
			return
		}
		for range together {
			if due := start.Add(time.Duration(n) * each); time.Until(due) > 0 {
				time.Sleep(time.Until(due))
			}
			if st.Send(updateOf("producer-"+strconv.Itoa(producer), chain(producer<<20|n%4096, 16))) != nil {
				break
			}
			n++
			sent.Add(1)
		}
		if _, err := st.CloseAndRecv(); err != nil {
			b.Error(err)
			return
		}
	}
}
