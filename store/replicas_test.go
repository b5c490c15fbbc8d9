package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// replicaPod is a pod that reads from replicas; with a memory and without.
func replicaPod(t *testing.T, url string) (cached *pod, bare *store.Store, r *store.Replicas) {
	t.Helper()
	rdb, err := store.Dial(store.DialOptions{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	r, err = store.DialReplicas(store.DialOptions{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	bare, err = store.Open(ctx, store.Options{Redis: rdb, Replicas: r})
	require.NoError(t, err)
	c, err := store.NewCached(bare, store.CachedOptions{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &pod{c, t, rdb}, bare, r
}

func reads(t *testing.T, r *store.Replicas, outcome string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(r))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == outcome {
			return m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no series of outcome %s", outcome)
	return 0
}

func hmgets(t *testing.T, s *rig.Server) (n int) {
	t.Helper()
	_, _ = fmt.Sscanf(lineOf(s.Client().Info(ctx, "commandstats").Val(), "cmdstat_hmget:"), "cmdstat_hmget:calls=%d", &n)
	return n
}

// usesReplicas waits until lookups of what "a" reported need no master: a replica that is new is not
// known to everybody at once. It returns such a lookup.
func usesReplicas(t *testing.T, bare *store.Store, master *rig.Server) (ask func() error) {
	t.Helper()
	ask = func() error {
		ev := new(ranking.Evidence)
		if err := bare.Match(ctx, query(vllm, "b0", "b1", "b2"), ev); err != nil {
			return err
		}
		if got := blocksOf(ev); got["a"] != 2 {
			return fmt.Errorf("got %v", got)
		}
		return nil
	}
	rig.Eventually(t, longEnough, "replicas that are used", func() error {
		before := hmgets(t, master)
		for range 5 {
			if err := ask(); err != nil {
				return err
			}
		}
		if n := hmgets(t, master) - before; n != 0 {
			return fmt.Errorf("the master was asked %d times", n)
		}
		return nil
	})
	return ask
}

func TestWalksGoToReplicas(t *testing.T) {
	t.Parallel()
	sentinel, cluster := rig.Sentinel(t), rig.ClusterWithReplicas(t, 1)
	for name, c := range map[string]struct {
		url    string
		master *rig.Server
	}{
		"Sentinel": {sentinel.URL(), sentinel.Servers[0]},
		"Cluster":  {cluster.URL(), cluster.Nodes[0]},
	} {
		t.Run(name, func(t *testing.T) {
			p, bare, r := replicaPod(t, c.url)
			require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
			ask := usesReplicas(t, bare, c.master)
			before, used := hmgets(t, c.master), reads(t, r, "used")
			for range 50 {
				require.NoError(t, ask())
			}
			require.Equal(t, used+50, reads(t, r, "used"))
			require.Equal(t, before, hmgets(t, c.master), "the master was asked")
		})
	}
}

func TestOneServerHasNoReplicasToReadFrom(t *testing.T) {
	t.Parallel()
	_, err := store.DialReplicas(store.DialOptions{URL: "redis://127.0.0.1:1"})
	require.ErrorIs(t, err, store.ErrNoReplicas)
}

// severed cuts a replica off from its master for good, so that it serves what it had.
func severed(t *testing.T, master, replica *rig.Server) {
	t.Helper()
	require.NoError(t, replica.Client().ConfigSet(ctx, "masterauth", "wrong").Err())
	require.NoError(t, master.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err())
	rig.Eventually(t, longEnough, "the link down", func() error {
		if line := lineOf(replica.Client().Info(ctx, "replication").Val(), "master_link_status:"); line != "master_link_status:down" {
			return fmt.Errorf("%q", line)
		}
		return nil
	})
}

func TestWhatAReplicaMissedIsNeverTakenForTheTruthBesideAMemory(t *testing.T) {
	t.Parallel()
	set := rig.ClusterWithReplicas(t, 1, rig.WithPassword("pw"))
	p, bare, r := replicaPod(t, set.URL())
	other := newPod(t, set.URL(), 1, store.CachedOptions{})
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	p.warm(query(vllm, "b0", "b1"))
	usesReplicas(t, bare, set.Nodes[0])
	severed(t, set.Nodes[0], set.Nodes[1])

	// What this pod wrote is there at once, though the replica never hears of it.
	for i := range 30 {
		chain := []string{"b0", fmt.Sprint("own-", i)}
		require.NoError(t, p.Report(ctx, report("a", vllm, 0, chain...)))
		got, _ := p.runs(query(vllm, chain...))
		require.Equal(t, 2, got["a"], "block %d", i)
	}
	// What another wrote is there once memory has heard of the log's end.
	require.NoError(t, other.Report(ctx, report("b", vllm, 0, "b0", "b1", "b2")))
	p.becomes(query(vllm, "b0", "b1"), map[string]int{"a": 2, "b": 2})
	for range 20 {
		got, _ := p.runs(query(vllm, "b0", "b1", "b2"))
		require.Equal(t, map[string]int{"a": 2, "b": 3}, got)
	}
	// A partition that the replica does not know is not called unknown.
	require.NoError(t, other.Report(ctx, &ranking.Report{Scope: ranking.Scope{Tenant: "new", Model: "m"}, Replica: "c", Scheme: "vllm",
		Entries: []ranking.Entry{{Hash: []byte("x"), Tokens: 16, Tier: ranking.TierT1}}}))
	q := query(vllm, "x")
	q.Scope = ranking.Scope{Tenant: "new", Model: "m"}
	got, _ := p.runs(q)
	require.Equal(t, map[string]int{"c": 1}, got)
	require.Positive(t, reads(t, r, "behind"), "no replica was asked")
}

func TestAReplicaThatHangsCostsAPartOfTheBudget(t *testing.T) {
	t.Parallel()
	set := rig.ClusterWithReplicas(t, 1)
	p, bare, r := replicaPod(t, set.URL())
	require.NoError(t, p.Report(ctx, report("a", vllm, 0, "b0", "b1")))
	usesReplicas(t, bare, set.Nodes[0])
	set.Nodes[1].Pause()
	defer set.Nodes[1].Resume()
	failures := reads(t, r, "failed")
	for range 5 {
		within, cancel := context.WithTimeout(ctx, 3*time.Second)
		ev := new(ranking.Evidence)
		require.NoError(t, bare.Match(within, query(vllm, "b0", "b1"), ev))
		cancel()
		require.Equal(t, map[string]int{"a": 2}, blocksOf(ev))
	}
	require.Greater(t, reads(t, r, "failed"), failures)
}
