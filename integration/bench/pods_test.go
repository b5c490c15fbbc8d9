package bench

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

var errCold = errors.New("not from memory yet")

// BenchmarkPods: lookups of one hot chain, 256 blocks that 8 replicas hold, from 16
// callers at 1, 2 and 4 pods, real processes on one Redis, and at a pod without memory
// for comparison. Callers, pods and Redis share the machine, so calls a second stop
// growing when its cores are used up; pod-cpu-µs says what a call costs a pod, and
// redis-cpu-µs what it costs Redis. commands/1000 are all commands that Redis ran
// in the window, whoever sent them, by thousand lookups; idle-commands/s is the same
// while nobody asks: the followers' reads, the pods' probes and sweeps.
func BenchmarkPods(b *testing.B) {
	for _, c := range []struct {
		name  string
		pods  int
		flags []string
	}{{"1", 1, nil}, {"2", 2, nil}, {"4", 4, nil}, {"1 without memory", 1, []string{"--cache", "off"}}} {
		b.Run(c.name, func(b *testing.B) {
			srv := rig.Standalone(b)
			rdb := srv.Client()
			hashes := chain(1, 256)
			holders(b, open(b, srv.URL(), 1), 8, hashes)
			req := requestFor(hashes)
			const idle, busy, callers = 2 * time.Second, 2 * time.Second, 16
			pods := make([]*pod.Pod, c.pods)
			for i := range pods {
				pods[i] = pod.Start(b, append([]string{"--redis", srv.URL()}, c.flags...)...)
				if c.flags == nil {
					hot(b, pods[i], req, hotReplicas)
				}
			}
			cpu := func() (seconds float64) {
				for _, p := range pods {
					seconds += p.Metric("process_cpu_seconds_total")
				}
				return seconds
			}
			commandsBefore := commands(b, rdb)
			time.Sleep(idle)
			idleRate := (commands(b, rdb) - commandsBefore) / idle.Seconds()

			commandsBefore = commands(b, rdb)
			redisBefore, podsBefore, start := mainThread(b, rdb), cpu(), time.Now()
			lookups := crowd(b, busy, callers, func(caller int) error {
				resp, err := pods[caller%c.pods].Client.LookupRoute(ctx, req)
				if err == nil && len(resp.GetReplicaScores()) != hotReplicas {
					err = fmt.Errorf("%d replicas, %s", len(resp.GetReplicaScores()), resp.GetReasonCode())
				}
				return err
			})
			elapsed := time.Since(start).Seconds()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(lookups/elapsed, "lookups/s")
			b.ReportMetric((commands(b, rdb)-commandsBefore)/lookups*1000, "commands/1000")
			b.ReportMetric(idleRate, "idle-commands/s")
			b.ReportMetric((mainThread(b, rdb)-redisBefore)/lookups, "redis-cpu-µs/lookup")
			b.ReportMetric((cpu()-podsBefore)*1e6/lookups, "pod-cpu-µs/lookup")
		})
	}
}

// hotReplicas is how many of the 8 holders of a whole chain are named.
const hotReplicas = 8

// BenchmarkColdLookup: chains of 256 blocks that 8 replicas hold, each asked for once,
// at a pod that follows the partition; and one of them again and again. redis-cpu-µs is
// what a cold one costs Redis' main thread.
func BenchmarkColdLookup(b *testing.B) {
	const chains, blocks = 400, 256
	srv := rig.Standalone(b)
	rdb := srv.Client()
	s := open(b, srv.URL(), 1)
	all := make([][][]byte, chains)
	reqs := make([]*pb.LookupRouteRequest, chains)
	for i := range all {
		all[i] = chain(i, blocks)
		reqs[i] = requestFor(all[i])
	}
	holders(b, s, 8, all...)
	p := pod.Start(b, "--redis", srv.URL())
	hot(b, p, reqs[0], hotReplicas)
	ask := func(req *pb.LookupRouteRequest) time.Duration {
		start := time.Now()
		resp, err := p.Client.LookupRoute(ctx, req)
		took := time.Since(start)
		require.NoError(b, err)
		require.Len(b, resp.GetReplicaScores(), hotReplicas, resp.GetReasonCode())
		return took
	}
	var cold, warm []time.Duration
	before := mainThread(b, rdb)
	for _, req := range reqs[1:] {
		cold = append(cold, ask(req))
	}
	used := mainThread(b, rdb) - before
	for range 2000 {
		warm = append(warm, ask(reqs[1]))
	}
	require.GreaterOrEqual(b, p.Metric("inferencecache_cache_blocks"), float64(chains*blocks))
	time.Sleep(time.Second) // so that one run is enough
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(used/(chains-1), "redis-cpu-µs/cold")
	b.ReportMetric(quantile(cold, .5), "cold-p50-µs")
	b.ReportMetric(quantile(cold, .99), "cold-p99-µs")
	b.ReportMetric(quantile(warm, .5), "hot-p50-µs")
	b.ReportMetric(quantile(warm, .99), "hot-p99-µs")
}
