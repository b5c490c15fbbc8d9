package soak

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// BenchmarkChurn: what storing blocks and evicting them again costs Redis' thread, in writes of so many
// blocks, sixteen writes in a round trip, beside 100,000 blocks that stay. For the sizing in docs/operations.md.
//
//	go test ./integration/soak -run '^$' -bench Churn -benchtime 1x
func BenchmarkChurn(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(size, " blocks"), func(b *testing.B) {
			r := rig.Standalone(b)
			rdb, err := store.Dial(store.DialOptions{URL: r.URL()})
			require.NoError(b, err)
			defer rdb.Close()
			s, err := store.Open(b.Context(), store.Options{Redis: rdb})
			require.NoError(b, err)
			scope, space := ranking.Scope{Tenant: tenant, Model: model}, ranking.Space{Scheme: scheme}
			entries := func(from, n int) (out []ranking.Entry, hashes [][]byte) {
				for i := range n {
					h := binary.BigEndian.AppendUint64(nil, uint64(from+i)*0x9e3779b97f4a7c15)
					out, hashes = append(out, ranking.Entry{Hash: h, Tokens: 16, Tier: 1}), append(hashes, h)
				}
				return out, hashes
			}
			send := func(fill func(*store.Batch)) {
				batch := s.Batch(scope, "engine-0")
				fill(batch)
				_, err := batch.Send(b.Context())
				require.NoError(b, err)
			}
			stay, _ := entries(1<<40, 100_000)
			send(func(batch *store.Batch) { batch.Report(space, 0, stay) })

			const calls, rounds = 16, 100
			var stored, evicted float64
			admin := r.Client()
			for b.Loop() {
				for round := range rounds {
					before := mainThread(b, admin)
					send(func(batch *store.Batch) {
						for c := range calls {
							e, _ := entries((round*calls+c)*size, size)
							batch.Report(space, 0, e)
						}
					})
					between := mainThread(b, admin)
					send(func(batch *store.Batch) {
						for c := range calls {
							_, hashes := entries((round*calls+c)*size, size)
							batch.Evict(space, hashes)
						}
					})
					stored, evicted = stored+between-before, evicted+mainThread(b, admin)-between
				}
			}
			blocks := float64(b.N) * rounds * calls * float64(size)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(stored/blocks, "redis-cpu-µs/stored")
			b.ReportMetric(evicted/blocks, "redis-cpu-µs/evicted")
		})
	}
}

// mainThread is the processor time of Redis' main thread so far, in µs.
func mainThread(b *testing.B, c *redis.Client) (usec float64) {
	info, err := c.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for _, part := range []string{"user", "sys"} {
		m := regexp.MustCompile(`used_cpu_` + part + `_main_thread:([0-9.]+)`).FindStringSubmatch(info)
		require.NotNil(b, m)
		seconds, err := strconv.ParseFloat(m[1], 64)
		require.NoError(b, err)
		usec += seconds * 1e6
	}
	return usec
}
