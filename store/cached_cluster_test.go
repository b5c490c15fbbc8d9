package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestALostClusterNodeIsReplacedInMemoryToo(t *testing.T) {
	t.Parallel()
	set := rig.ClusterWithReplicas(t, 3)
	p := newPod(t, set.URL(), 1, store.CachedOptions{})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	q := query(vllm, "b0", "b1")
	p.warm(q)
	owner := set.Owner(keys().Log())
	c := owner.Client()
	rig.Eventually(t, longEnough, "its replica has it", func() error {
		if n, err := c.Do(ctx, "WAIT", 1, 1000).Int(); err != nil || n < 1 {
			return fmt.Errorf("%d replicas: %w", n, err)
		}
		return nil
	})
	b := p.probe(q)
	owner.Kill()
	rig.Eventually(t, 2*longEnough, "a write to the new master", func() error {
		return p.Report(ctx, report("b", vllm, 0, "b0"))
	})
	p.becomes(q, map[string]int{"a": 2, "b": 1})
	p.warm(q)
	b.end(t)
}

func TestASlotThatMovesTakesItsMemoryAlong(t *testing.T) {
	t.Parallel()
	set := rig.Cluster(t, 3)
	p, there := newPod(t, set.URL(), 1, store.CachedOptions{}), newPod(t, set.URL(), 1, store.CachedOptions{})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	q := query(vllm, "b0", "b1")
	p.warm(q)
	there.warm(q)
	b := p.probe(q)
	set.MoveSlot(keys().Log())
	require.NoError(t, there.Report(ctx, report("b", vllm, 0, "b0")))
	p.becomes(q, map[string]int{"a": 2, "b": 1})
	p.warm(q)
	b.end(t)
}

func TestAShardThatDoesNotAnswerCostsItsOwnReplicas(t *testing.T) {
	t.Parallel()
	const shards = 4
	set := rig.Cluster(t, 3)
	writer := newPod(t, set.URL(), shards, store.CachedOptions{})
	q := query(vllm, "b0", "b1")
	paused := set.Owner(store.KeysOf(scope, 0).Log())
	want := map[string]int{}
	for i := range 24 {
		replica := fmt.Sprint("engine-", i)
		require.NoError(t, writer.Report(ctx, report(replica, vllm, 0, "b0", "b1")))
		if set.Owner(store.KeysOf(scope, store.ShardOf(replica, shards)).Log()) != paused {
			want[replica] = 2
		}
	}
	require.NotEmpty(t, want)
	cold := newPod(t, set.URL(), shards, store.CachedOptions{})
	require.NoError(t, cold.rdb.Ping(ctx).Err())
	paused.Pause()
	defer paused.Resume()
	rig.Eventually(t, longEnough, "the hints of the other shards", func() error {
		within, cancel := context.WithTimeout(ctx, 5*budget)
		defer cancel()
		ev := new(ranking.Evidence)
		began := time.Now()
		if err := cold.Match(within, q, ev); err != nil {
			return err
		}
		if took := time.Since(began); took > 5*budget {
			return fmt.Errorf("took %v", took)
		}
		if got := blocksOf(ev); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}
