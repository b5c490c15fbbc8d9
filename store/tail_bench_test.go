package store_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// BenchmarkFollow reads a log of 1,000 reports of 256 blocks that is there already: what
// one tail can tell a second, to hold beside the blocks a second that writers report.
func BenchmarkFollow(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: rig.Standalone(b).Addr(), Protocol: 2})
	b.Cleanup(func() { _ = rdb.Close() })
	s, err := store.Open(ctx, store.Options{Redis: rdb})
	require.NoError(b, err)
	const reports, blocks = 1000, 256
	rep := report("r", vllm, 0, make([]string, blocks)...)
	var told, took float64
	for b.Loop() {
		ctx, stop := context.WithCancel(ctx)
		var start time.Time
		n := 0
		err := s.Follow(ctx, &ranking.ChangeFilter{Scope: scope}, func() {
			for i := range reports {
				for j := range rep.Entries {
					rep.Entries[j].Hash = binary.BigEndian.AppendUint64(nil, uint64(i%10*blocks+j))
				}
				require.NoError(b, s.Report(ctx, rep))
			}
			start = time.Now()
		}, func(c *ranking.Change) error {
			if n += len(c.Hashes); n == reports*blocks {
				took += time.Since(start).Seconds()
				stop()
			}
			return nil
		})
		require.NoError(b, err)
		require.Equal(b, reports*blocks, n)
		told += float64(n)
	}
	b.ReportMetric(told/took, "hashes/s")
	b.ReportMetric(0, "ns/op") // it has the writing in it
}
