package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// metric is the sum of a metric's series that have the label value, of all if it is "".
func (p *pod) metric(name, label string) (sum float64) {
	p.t.Helper()
	r := prometheus.NewRegistry()
	require.NoError(p.t, r.Register(p.Cached))
	families, err := r.Gather()
	require.NoError(p.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestPartitionsThatNobodyAsksForAreLetGo(t *testing.T) {
	t.Parallel()
	p := newPod(t, urlOf(rig.Standalone(t).Addr()), 1, store.CachedOptions{IdleAfter: time.Second})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0")))
	q := query(vllm, "b0")
	p.warm(q)
	require.EqualValues(t, 1, p.metric("inferencecache_cache_partitions", "live"))
	rig.Eventually(t, longEnough, "no partition remembered", func() error {
		if n := p.metric("inferencecache_cache_partitions", ""); n != 0 {
			return fmt.Errorf("%v left", n)
		}
		return nil
	})
	require.EqualValues(t, 1, p.metric("inferencecache_cache_dropped_total", "idle"))
	require.Zero(t, p.metric("inferencecache_cache_blocks", ""))
	p.warm(q) // and it comes back
}

func TestNoMorePartitionsAreFollowedThanAllowed(t *testing.T) {
	t.Parallel()
	p := newPod(t, urlOf(miniredis.RunT(t).Addr()), 1, store.CachedOptions{MaxPartitions: 3})
	for i := range 10 {
		r := report("a", vllm, 0, "b0")
		r.Model = fmt.Sprint("model-", i)
		require.NoError(t, p.Report(ctx, r))
		q := query(vllm, "b0")
		q.Model = r.Model
		p.warm(q)
	}
	require.EqualValues(t, 3, p.metric("inferencecache_cache_partitions", ""))
	require.EqualValues(t, 7, p.metric("inferencecache_cache_dropped_total", "room"))
}

// Names come from callers: what does not exist is neither followed nor asked for again and again.
func TestUnknownNamesAreAskedForOnceASecond(t *testing.T) {
	t.Parallel()
	p := newPod(t, urlOf(miniredis.RunT(t).Addr()), 1, store.CachedOptions{})
	q := query(vllm, "b0")
	for range 500 {
		_, ev := p.runs(q)
		require.Equal(t, ranking.CensusIndexEmpty, ev.Census)
	}
	require.Less(t, p.metric("inferencecache_cache_reads_total", ""), 100.0)
	require.Zero(t, p.metric("inferencecache_cache_partitions", ""))
}

func TestALogThatIsNoStreamIsReadThrough(t *testing.T) {
	t.Parallel()
	srv := rig.Standalone(t)
	p := newPod(t, urlOf(srv.Addr()), 1, store.CachedOptions{})
	good := query(vllm, "b0")
	good.Model = "good"
	for _, model := range []string{scope.Model, good.Model} {
		r := report("a", vllm, 0, "b0")
		r.Model = model
		require.NoError(t, p.Report(ctx, r))
	}
	p.warm(good)
	require.NoError(t, p.rdb.Del(ctx, keys().Log()).Err())
	require.NoError(t, p.rdb.HSet(ctx, keys().Log(), "not", "a stream").Err())
	rig.Eventually(t, longEnough, "the partition dropped", func() error {
		if got, ev := p.runs(query(vllm, "b0")); len(got) != 1 || ev.Walked == 0 {
			return fmt.Errorf("%v, walked %d", got, ev.Walked)
		}
		if p.metric("inferencecache_cache_dropped_total", "garbage") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	got, _ := p.runs(query(vllm, "b0"))
	require.Equal(t, map[string]int{"a": 1}, got)
	p.warm(good) // the others on the connection are still followed
}
