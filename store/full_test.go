package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// A Redis without memory refuses reports; whatever gives memory back, or keeps what is
// there alive, must go on.
func TestARedisThatIsFullIsStillSweptEvictedAndCleared(t *testing.T) {
	w := newWorld(t, rig.Standalone(t).Addr(), 2, store.Options{})
	old := w.now() - time.Hour.Milliseconds()
	for i := range 30 {
		// Blocks with two holders, of which one goes: what is left has to be written.
		hash := fmt.Sprint("block-", i)
		w.holds("expired", vllm, old, hash)
		w.holds("evicted", vllm, 0, hash)
		w.holds("cleared", vllm, 0, hash)
		w.holds("stays", vllm, 0, hash)
	}
	require.NoError(t, w.rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorContains(t, w.Report(ctx, report("stays", vllm, 0, "one more")), "OOM")

	_, err := w.RenewLease(ctx, scope, "stays", time.Minute)
	require.NoError(t, err)
	require.NoError(t, w.Report(ctx, &ranking.Report{Scope: scope, Replica: "stays", Stats: &ranking.Stats{HitRate: 1}}))
	_, err = w.RenewLease(ctx, scope, "nobody", time.Minute)
	require.ErrorContains(t, err, "OOM", "a new replica takes memory")

	require.NoError(t, w.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: "evicted", Hash: []byte("block-0")}))
	require.NoError(t, w.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "cleared"}))
	sweeper, err := store.NewSweeper(w.Store, store.SweeperOptions{
		EvictionTTL: func(string) time.Duration { return time.Minute },
	})
	require.NoError(t, err)
	require.NoError(t, sweeper.Tick(ctx))

	records := map[uint32]int{}
	for _, v := range w.rdb.HGetAll(ctx, blocksKey(vllm)).Val() {
		holds, err := store.DecodeHolds(nil, v)
		require.NoError(t, err)
		for _, h := range holds {
			records[h.Replica]++
		}
	}
	require.Len(t, records, 2, "what expired and what was cleared is gone")
	counts := []int{}
	for _, n := range records {
		counts = append(counts, n)
	}
	require.ElementsMatch(t, []int{29, 30}, counts)
}
