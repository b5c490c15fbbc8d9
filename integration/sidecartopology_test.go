package integration_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/sidecar/publisher"
)

// TestSidecarsOnAClusterWithShards: replicas lie in several slots of a Cluster of three, and a lookup sees all of them.
func TestSidecarsOnAClusterWithShards(t *testing.T) {
	t.Parallel()
	set := rig.Cluster(t, 3)
	p := pod.Start(t, "--redis", set.URL(), "--shards", "3")
	chain := ids(1, 40)
	var engines []*simEngine
	for i := range 5 {
		e := newSimEngine(t, 0)
		engines = append(engines, e)
		startSidecar(t, set.URL(), e, model, replicaOf(i), "--shards", "3")
		e.publish(e.stored(chain[:8*(i+1)], 0))
	}
	sees := func(want map[string]int32) {
		t.Helper()
		rig.Eventually(t, settleLimit, "each replica's match", func() error {
			reply, err := p.Client.LookupRoute(t.Context(), lookupByTokens(model, tokensOf(chain...), ""))
			if err != nil {
				return err
			}
			got := map[string]int32{}
			for _, s := range reply.GetReplicaScores() {
				got[s.GetReplicaId()] = s.GetMatchedTokens()
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		})
	}
	// All hold the first blocks, so the shortest match has the score 0; the default policy's floor looks at the best only.
	sees(map[string]int32{replicaOf(0): 128, replicaOf(1): 256, replicaOf(2): 384, replicaOf(3): 512, replicaOf(4): 640})
	engines[4].publish(engines[4].removed(chain[10:]...))
	sees(map[string]int32{replicaOf(0): 128, replicaOf(1): 256, replicaOf(2): 384, replicaOf(3): 512, replicaOf(4): 160})
}

// TestASidecarForAnotherNumberOfShardsRefusesToStart, and says with which one to start it.
func TestASidecarForAnotherNumberOfShardsRefusesToStart(t *testing.T) {
	t.Parallel()
	r := rig.Standalone(t)
	pod.Start(t, "--redis", r.URL(), "--shards", "4")
	e, err := publisher.Listen(t.Context(), publisher.Options{Endpoint: "tcp://127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	events, _ := e.Endpoints()
	proc, err := rig.Start(t, "kvsidecar", filepath.Join(t.TempDir(), "log"), pod.Binary(t, "kvsidecar"), []string{
		"--replica-id=r", "--model-id=m", "--tenant-id=t", "--hash-scheme=vllm", "--engine-metrics-url=", "--http-bind-address=127.0.0.1:0",
		"--redis", r.URL(), "--engine-endpoint", events}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, proc.ExitCode())
	require.Contains(t, proc.Output(), "--shards 4")
}
