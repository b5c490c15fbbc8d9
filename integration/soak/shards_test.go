package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// TestAnotherNumberOfShardsWithoutLosingAHint goes the way of docs/operations.md: a second tier on an empty
// database, fed by second sidecars of the same engines, takes over when it knows as much as the first.
func TestAnotherNumberOfShardsWithoutLosingAHint(t *testing.T) {
	r := rig.Standalone(t)
	oldURL, newURL := "redis://"+r.Addr()+"/0", "redis://"+r.Addr()+"/1"
	w := newWorld(t, 100, 1)
	var engines []*engine
	serve := func(from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, engines[i%len(engines)].serve(&w.prompts[i]))
		}
	}
	policies := t.TempDir()
	writePolicy(t, policies, goodPolicy)
	first := startPod(t, "--redis", oldURL, "--policy-dir", policies)
	rig.Eventually(t, time.Minute, "the first tier being ready", first.ready)
	for i := range 3 {
		engines = append(engines, startEngine(t, fmt.Sprint("engine-", i), oldURL, len(w.blocks)/4))
	}
	serve(0, 60)
	knows(t, first, w, engines)

	// The same database takes nobody with another number.
	refused := pod.Launch(t, "--redis", oldURL, "--shards", "4")
	<-refused.Done()
	require.Equal(t, 1, refused.ExitCode())
	require.Contains(t, refused.Output(), "laid out for --shards 1")

	second := startPod(t, "--redis", newURL, "--shards", "4", "--policy-dir", policies)
	rig.Eventually(t, time.Minute, "the second tier being ready", second.ready)
	var sidecars []*rig.Process
	for _, e := range engines {
		sidecars = append(sidecars, e.runSidecar("--redis", newURL, "--shards", "4"))
	}
	serve(60, 80)
	knows(t, second, w, engines)
	knows(t, first, w, engines)

	// Here gateways go over to the second tier; then the first one goes.
	for _, e := range engines {
		require.True(t, e.side.Stop(30*time.Second))
	}
	require.True(t, first.proc.Stop(30*time.Second))
	require.NoError(t, r.Client().FlushDB(t.Context()).Err())
	serve(80, 100)
	knows(t, second, w, engines)
	for _, s := range sidecars {
		require.True(t, s.Running())
	}
}

// knows waits until a pod counts as many prefixes as the engines hold and answers every prompt by them.
func knows(t *testing.T, p *lookupPod, w *world, engines []*engine) {
	t.Helper()
	conn, err := grpc.NewClient(p.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	c := pb.NewInferenceCacheClient(conn)
	holds, distinct := map[string]map[string]uint32{}, map[string]bool{}
	for _, e := range engines {
		holds[e.replica] = e.holds(w)
		for hash := range holds[e.replica] {
			distinct[hash] = true
		}
	}
	rig.Eventually(t, time.Minute, "every prefix being counted", func() error {
		state, err := c.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: tenant, ModelId: model})
		if err != nil {
			return err
		}
		if n := state.GetSummary().GetTotalPrefixes(); n != int64(len(distinct)) {
			return fmt.Errorf("%d of %d", n, len(distinct))
		}
		return nil
	})
	for i := range w.prompts {
		rig.Eventually(t, time.Minute, fmt.Sprint("prompt ", i), func() error {
			return answersRight(t.Context(), c, &w.prompts[i], holds)
		})
	}
}
