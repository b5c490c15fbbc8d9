package bench

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
)

// BenchmarkIngest: 8 producers report blocks that nobody holds yet, 1, 16 or 256 of them
// in a report.
//
//	grpc    through a pod, 64 updates in a stream (16 of 256 blocks), then its Ack
//	unary   through a pod, one update in a stream
//	store   through the store alone, a call for each report: what a sidecar's writer does
//	batched through the store alone, as many reports in one call
//
// The pod follows the partition, as it would for its lookups. They take turns, so that what else the machine does hits all alike. grpc-x-batched
// compares like with like. redis-cpu is the share of the time that Redis' main thread
// was busy in the grpc turns.
func BenchmarkIngest(b *testing.B) {
	for _, blocks := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(blocks, " blocks"), func(b *testing.B) { benchIngest(b, blocks) })
	}
}

func benchIngest(b *testing.B, blocks int) {
	const producers, rounds, round = 8, 5, 300 * time.Millisecond
	together := min(64, 4096/blocks)
	srv := rig.Standalone(b)
	rdb := srv.Client()
	p := pod.Start(b, "--redis", srv.URL())
	s := open(b, srv.URL(), 1)
	// The pod has lookups too, so it must be sure to see what it wrote.
	holders(b, s, 8, chain(0, 16))
	hot(b, p, requestFor(chain(0, 16)), 8)
	var seed atomic.Int64
	next := func() [][]byte { return chain(int(seed.Add(1)), blocks) }
	stream := func(producer, updates int) error {
		st, err := p.Client.ReportCacheState(ctx)
		if err != nil {
			return err
		}
		for range updates {
			if err := st.Send(updateOf("engine-"+strconv.Itoa(producer), next())); err != nil {
				break // CloseAndRecv has the reason
			}
		}
		_, err = st.CloseAndRecv()
		return err
	}
	ways := []struct {
		name    string
		reports int
		send    func(producer int) error
	}{
		{"grpc", together, func(producer int) error { return stream(producer, together) }},
		{"unary", 1, func(producer int) error { return stream(producer, 1) }},
		{"store", 1, func(producer int) error { return s.Report(ctx, reportOf("engine-"+strconv.Itoa(producer), next())) }},
		{"batched", together, func(producer int) error {
			batch := make([]*ranking.Report, together)
			for i := range batch {
				batch[i] = reportOf("engine-"+strconv.Itoa(producer), next())
			}
			return s.Report(ctx, batch...)
		}},
	}
	rates := map[string][]float64{}
	var busy []float64
	for range rounds {
		for _, way := range ways {
			before, start := mainThread(b, rdb), time.Now()
			calls := crowd(b, round, producers, way.send)
			elapsed := time.Since(start)
			rates[way.name] = append(rates[way.name], calls*float64(way.reports*blocks)/elapsed.Seconds())
			if way.name == "grpc" {
				busy = append(busy, (mainThread(b, rdb)-before)/float64(elapsed.Microseconds()))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, way := range ways {
		b.ReportMetric(median(rates[way.name]), way.name+"-holds/s")
	}
	b.ReportMetric(ratio(rates["grpc"], rates["store"]), "grpc-x-store")
	b.ReportMetric(ratio(rates["grpc"], rates["batched"]), "grpc-x-batched")
	b.ReportMetric(median(busy), "redis-cpu")
}
