package store_test

import (
	"fmt"
	"testing"

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
