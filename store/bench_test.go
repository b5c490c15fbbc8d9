package store_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
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

// benchWorld is a Store on a real Redis of its own.
func benchWorld(b *testing.B) *world {
	return newWorld(b, rig.Standalone(b).Addr(), 2, store.Options{})
}

// chain makes n hashes of 8 bytes, as fingerprints are; chains of different seeds have none in common.
func chain(seed, n int) [][]byte {
	hashes := make([][]byte, n)
	for i := range hashes {
		x := (uint64(seed)<<32 | uint64(i)) * 0x9E3779B97F4A7C15
		hashes[i] = binary.BigEndian.AppendUint64(nil, x^x>>29)
	}
	return hashes
}

func chainReport(replica string, hashes [][]byte) *ranking.Report {
	r := &ranking.Report{Scope: scope, Replica: replica, Scheme: "vllm", Entries: make([]ranking.Entry, len(hashes))}
	for i, h := range hashes {
		r.Entries[i] = ranking.Entry{Hash: h, Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1}
	}
	return r
}

func chainQuery(hashes [][]byte) *ranking.Query {
	q := &ranking.Query{Scope: scope, Space: vllm, Hashes: hashes, Tokens: make([]int32, len(hashes)), TTLMS: halfHour}
	for i := range q.Tokens {
		q.Tokens[i] = 16
	}
	return q
}

// usecPerCall is Redis' own time for a command since CONFIG RESETSTAT.
func usecPerCall(b *testing.B, rdb *redis.Client, command string) float64 {
	info := rdb.Info(ctx, "commandstats").Val()
	m := regexp.MustCompile(`cmdstat_` + command + `:.*usec_per_call=([0-9.]+)`).FindStringSubmatch(info)
	require.NotNil(b, m, "no %s in %s", command, info)
	usec, err := strconv.ParseFloat(m[1], 64)
	require.NoError(b, err)
	return usec
}

// BenchmarkWalkInRedis compares Redis' own time for a walk, head and clock included, with
// that of a bare HMGET of the same fields: as its command statistics have it, and as the
// CPU time of its main thread, which includes reading the request and sending the reply.
func BenchmarkWalkInRedis(b *testing.B) {
	for _, c := range []struct{ blocks, shared, holders int }{{256, 256, 8}, {256, 64, 128}, {2000, 2000, 8}, {256, 0, 0}} {
		b.Run(fmt.Sprintf("%dblocks_%dshared_%dholders", c.blocks, c.shared, c.holders), func(b *testing.B) {
			w := benchWorld(b)
			hashes := chain(1, c.blocks)
			for i := range c.holders {
				n := c.shared
				if i == 0 {
					n = c.blocks
				}
				require.NoError(b, w.Report(ctx, chainReport(fmt.Sprint("replica-", i), hashes[:n])))
			}
			q, ev := chainQuery(hashes), new(ranking.Evidence)
			require.NoError(b, w.Match(ctx, q, ev))
			require.Len(b, ev.Runs, c.holders)
			fields := make([]string, len(hashes))
			for i, h := range hashes {
				fields[i] = string(h)
			}
			var walk, bare, walkCPU, bareCPU float64
			for b.Loop() {
				// Turn by turn, so that what else the machine does falls on both.
				cpu, usec := inRedis(b, w.rdb, "exec", func() { require.NoError(b, w.Match(ctx, q, ev)) })
				walkCPU, walk = walkCPU+cpu, walk+usec
				cpu, usec = inRedis(b, w.rdb, "hmget", func() { require.NoError(b, w.rdb.HMGet(ctx, blocksKey(vllm), fields...).Err()) })
				bareCPU, bare = bareCPU+cpu, bare+usec
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(walk/float64(b.N), "redis-us/walk")
			b.ReportMetric(bare/float64(b.N), "redis-us/hmget")
			b.ReportMetric(walk/bare, "walk/hmget")
			b.ReportMetric(walkCPU/bareCPU, "walk/hmget-cpu")
		})
	}
}

// BenchmarkGuard fails if a walk costs Redis' main thread more than three times what a
// bare HMGET of the same 256 fields does, in the same run. The best of five rounds
// counts: noise only ever makes things slower.
func BenchmarkGuard(b *testing.B) {
	const ceiling, rounds = 3, 5
	w := benchWorld(b)
	hashes := chain(1, 256)
	fields := make([]string, len(hashes))
	for i, h := range hashes {
		fields[i] = string(h)
	}
	for i := range 8 {
		require.NoError(b, w.Report(ctx, chainReport(fmt.Sprint("replica-", i), hashes)))
	}
	q, ev := chainQuery(hashes), new(ranking.Evidence)
	best := math.Inf(1)
	for range rounds {
		var walk, bare float64
		for range 5 {
			cpu, _ := inRedis(b, w.rdb, "exec", func() { require.NoError(b, w.Match(ctx, q, ev)) })
			walk += cpu
			cpu, _ = inRedis(b, w.rdb, "hmget", func() { require.NoError(b, w.rdb.HMGet(ctx, blocksKey(vllm), fields...).Err()) })
			bare += cpu
		}
		best = min(best, walk/bare)
	}
	require.Len(b, ev.Runs, 8)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(best, "walk/hmget-cpu")
	if best > ceiling {
		b.Errorf("a walk costs Redis %.1f times a bare HMGET: at most %d times is allowed", best, ceiling)
	}
}

// inRedis calls f a hundred times and returns, for each call, the CPU time of Redis'
// main thread and its own figure for the command, both in µs.
func inRedis(b *testing.B, rdb *redis.Client, command string, f func()) (cpu, usec float64) {
	require.NoError(b, rdb.ConfigResetStat(ctx).Err())
	before := mainThread(b, rdb)
	for range 100 {
		f()
	}
	return (mainThread(b, rdb) - before) / 100, usecPerCall(b, rdb, command)
}

func mainThread(b *testing.B, rdb *redis.Client) (usec float64) {
	for _, part := range []string{"user", "sys"} {
		m := regexp.MustCompile(`used_cpu_` + part + `_main_thread:([0-9.]+)`).FindStringSubmatch(rdb.Info(ctx, "cpu").Val())
		require.NotNil(b, m)
		seconds, err := strconv.ParseFloat(m[1], 64)
		require.NoError(b, err)
		usec += seconds * 1e6
	}
	return usec
}

// BenchmarkReport writes reports of 256 blocks from several writers. fresh: blocks that
// nobody holds yet; shared: blocks that seven others hold; again: the same blocks once more.
func BenchmarkReport(b *testing.B) {
	const blocks, writers = 256, 8
	for _, kind := range []string{"fresh", "shared", "again"} {
		b.Run(kind, func(b *testing.B) {
			w := benchWorld(b)
			const chains = 64
			prepared := make([][][]byte, chains)
			for i := range prepared {
				prepared[i] = chain(1_000_000+i, blocks)
				if kind == "fresh" {
					continue
				}
				for holder := range 7 {
					require.NoError(b, w.Report(ctx, chainReport(fmt.Sprint("holder-", holder), prepared[i])))
				}
			}
			var next, seq atomic.Int64
			b.SetParallelism(writers / 2)
			// A sweeper is at work where there are lookup pods: reports need not look for what it drops.
			require.NoError(b, w.Report(ctx, chainReport("holder-0", chain(0, 1))))
			sweeper, err := store.NewSweeper(w.Store, store.SweeperOptions{})
			require.NoError(b, err)
			require.NoError(b, sweeper.Tick(ctx))
			require.NoError(b, w.rdb.ConfigResetStat(ctx).Err())
			cpu := mainThread(b, w.rdb)
			b.ResetTimer()
			start := time.Now()
			b.RunParallel(func(pb *testing.PB) {
				id := fmt.Sprint("writer-", next.Add(1))
				if kind == "again" {
					id = "holder-3"
				}
				for pb.Next() {
					n := int(seq.Add(1))
					hashes := prepared[n%chains]
					if kind == "fresh" {
						hashes = chain(n, blocks)
					}
					if err := w.Report(ctx, chainReport(id, hashes)); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)*blocks/time.Since(start).Seconds(), "holds/s")
			b.ReportMetric(usecPerCall(b, w.rdb, "evalsha"), "redis-us/report")
			b.ReportMetric((mainThread(b, w.rdb)-cpu)/float64(b.N), "redis-cpu-us/report")
		})
	}
}

// BenchmarkBytesPerHold reports what a hold costs Redis, by MEMORY USAGE of the blocks and by used_memory.
func BenchmarkBytesPerHold(b *testing.B) {
	for _, holders := range []int{1, 10} {
		b.Run(fmt.Sprintf("%dholders", holders), func(b *testing.B) {
			const blocks = 200_000
			w := benchWorld(b)
			for b.Loop() {
				require.NoError(b, w.rdb.FlushAll(ctx).Err())
				before := usedMemory(b, w.rdb)
				for from := 0; from < blocks; from += 5000 {
					hashes := chain(from, 5000)
					for h := range holders {
						require.NoError(b, w.Report(ctx, chainReport(fmt.Sprint("replica-", h), hashes)))
					}
				}
				log := w.rdb.MemoryUsage(ctx, keys().Log()).Val()
				own := w.rdb.MemoryUsage(ctx, blocksKey(vllm), 0).Val()
				total := usedMemory(b, w.rdb) - before
				b.ReportMetric(float64(own)/blocks/float64(holders), "B/hold")
				b.ReportMetric(float64(total-log)/blocks/float64(holders), "B/hold-used-memory")
				b.ReportMetric(float64(log), "B-log")
			}
		})
	}
}

func usedMemory(b *testing.B, rdb *redis.Client) int64 {
	m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(rdb.Info(ctx, "memory").Val())
	require.NotNil(b, m)
	n, err := strconv.ParseInt(m[1], 10, 64)
	require.NoError(b, err)
	return n
}

// BenchmarkClear measures from sending ALL_CLEARED until a lookup no longer sees the
// replica: a few times each, since filling is what takes long.
func BenchmarkClear(b *testing.B) {
	for _, holds := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("%dholds", holds), func(b *testing.B) {
			const times = 5
			w := benchWorld(b)
			require.NoError(b, w.Report(ctx, chainReport("other", chain(0, 1))))
			q, ev := chainQuery(chain(0, 16)), new(ranking.Evidence)
			var took []time.Duration
			for range times {
				for from := 0; from < holds; from += 5000 {
					require.NoError(b, w.Report(ctx, chainReport("big", chain(from, min(5000, holds)))))
				}
				require.NoError(b, w.Match(ctx, q, ev))
				require.Len(b, ev.Serving, 2)
				start := time.Now()
				require.NoError(b, w.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "big"}))
				require.NoError(b, w.Match(ctx, q, ev))
				took = append(took, time.Since(start))
				require.Len(b, ev.Serving, 1)
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[times/2].Microseconds())/1000, "ms/clear")
		})
	}
}
