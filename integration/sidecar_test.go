package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// ids are the names of n blocks that no other seed shares.
func ids(seed, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(seed*1000 + i)
	}
	return out
}

// everyPod waits for a lookup's answer in each of them.
func everyPod(t testing.TB, pods []*pod.Pod, what string, chain []uint64, replica string, blocks int) {
	t.Helper()
	for _, p := range pods {
		rig.Eventually(t, settleLimit, what, hinted(t, p, model, tokensOf(chain...), "", replica, engineBlock*blocks))
	}
}

// twoPods are one with a memory of its own and one that asks Redis each time.
func twoPods(t testing.TB, url string) []*pod.Pod {
	return []*pod.Pod{pod.Start(t, "--redis", url, "--cache=on"), pod.Start(t, "--redis", url, "--cache=off")}
}

func TestAStoredBlockIsAHintInEveryPodAndARemovedOneIsGone(t *testing.T) {
	t.Parallel()
	r := rig.Standalone(t)
	pods := twoPods(t, r.URL())
	e := newSimEngine(t, 0)
	side := startSidecar(t, r.URL(), e, model, "r")
	chain := ids(1, 20)
	e.publish(e.stored(chain, 0))
	everyPod(t, pods, "a stored prompt", chain, "r", 20)
	e.publish(e.removed(chain[12:]...))
	everyPod(t, pods, "what is left of it", chain, "r", 12)
	e.publish(e.stored(chain, 12))
	everyPod(t, pods, "the rest stored again", chain, "r", 20)
	require.InDelta(t, 20, side.metric("kvsidecar_blocks_resident"), 0)
	require.True(t, side.proc.Stop(settleLimit))
	require.Zero(t, side.proc.ExitCode())
	everyPod(t, pods, "a retired replica", chain, "", 0)
}

// TestALapsedLeaseLeavesEveryAnswer: nobody writes anything when a sidecar or its engine dies, so nothing comes
// through the change log either. A pod has to see by the clock alone that the replica is gone.
func TestALapsedLeaseLeavesEveryAnswer(t *testing.T) {
	t.Parallel()
	r := rig.Standalone(t)
	pods := twoPods(t, r.URL())
	chain := ids(1, 20)
	lasting := newSimEngine(t, 0)
	startSidecar(t, r.URL(), lasting, model, "lasting", "--lease", "2s")
	lasting.publish(lasting.stored(chain[:10], 0))

	e := newSimEngine(t, 0)
	side := startSidecar(t, r.URL(), e, model, "killed", "--lease", "2s")
	e.publish(e.stored(chain, 0))
	everyPod(t, pods, "the longer match", chain, "killed", 20)
	side.proc.Kill()
	everyPod(t, pods, "the one whose sidecar lives", chain, "lasting", 10)

	// The engine's cache is as it was: its next sidecar brings it all back.
	side = startSidecar(t, r.URL(), e, model, "killed", "--lease", "2s")
	everyPod(t, pods, "the longer match again", chain, "killed", 20)

	// An engine that dies under a living sidecar.
	e.kill()
	everyPod(t, pods, "the one whose engine lives", chain, "lasting", 10)
	e.salt = 2
	e.listen()
	e.publish(e.stored(ids(2, 8), 0))
	everyPod(t, pods, "what the new engine stored", ids(2, 8), "killed", 8)
	for _, p := range pods {
		require.NoError(t, hinted(t, p, model, tokensOf(chain...), "", "lasting", 10*engineBlock)(), "what the old engine held is gone for good")
	}
	require.InDelta(t, 1, side.metric("kvsidecar_engine_restarts_total"), 0)
}

// TestAKeptEvictionIsT2AndAnAdapterHasItsName gives every flag that deployments already use.
func TestAKeptEvictionIsT2AndAnAdapterHasItsName(t *testing.T) {
	t.Parallel()
	r := rig.Standalone(t)
	p := pod.Start(t, "--redis", r.URL())
	e := newSimEngine(t, 0)
	side := startSidecar(t, r.URL(), e, model, "r", "--topic=", "--window=2ms", "--stats-interval=1s", "--engine-cache-size-bytes=1000",
		"--max-concurrency-ceiling=64", "--engine-model-name=served", "--lora-adapter-names", "1=french,2=sql", "--ignore-block-removed", "--on-exit=keep")
	chain := ids(1, 10)
	e.publish(e.stored(chain, 0))
	everyPod(t, []*pod.Pod{p}, "a stored prompt", chain, "r", 10)
	e.publish(e.removed(chain...))
	tier := func(want string) func() error {
		return func() error {
			reply, err := p.Client.LookupRoute(t.Context(), lookupByTokens(model, tokensOf(chain...), ""))
			if err != nil {
				return err
			}
			if len(reply.GetReplicaScores()) != 1 || reply.GetReplicaScores()[0].GetTier().String() != want {
				return fmt.Errorf("%v, want tier %s", reply, want)
			}
			return nil
		}
	}
	rig.Eventually(t, settleLimit, "T2 for what the offload tier kept", tier("CACHE_TIER_T2"))

	named := e.stored(ids(2, 10), 0)
	named[5] = 2
	nameless := e.stored(ids(3, 10), 0)
	nameless[5] = 7
	e.publish(named, nameless)
	rig.Eventually(t, settleLimit, "the adapter's name", hinted(t, p, model, tokensOf(ids(2, 10)...), "sql", "r", 160))
	for _, adapter := range []string{"", "french", "sql", "7"} {
		require.NoError(t, hinted(t, p, model, tokensOf(ids(3, 10)...), adapter, "", 0)(), "an adapter without a name")
	}
	require.InDelta(t, 10, side.metric(`kvsidecar_blocks_kept_out{reason="unmapped_adapter",replica="r"}`), 0)
	_, page := side.get("/metrics")
	require.NotContains(t, page, "kvsidecar_scrapes_total", "an empty --engine-metrics-url turns stats off")

	require.True(t, side.proc.Stop(settleLimit))
	require.NoError(t, hinted(t, p, model, tokensOf(ids(2, 10)...), "sql", "r", 160)(), "--on-exit=keep")
}

// TestACapturedEventIsMatchedThroughAPod publishes an event that vLLM sent (LOOKUPTIER_DATA/kv_event_base.json, else one of
// its form), and asks a pod with nothing but the prompt's token ids.
func TestACapturedEventIsMatchedThroughAPod(t *testing.T) {
	t.Parallel()
	event := struct {
		Hashes    []uint64 `json:"block_hashes"`
		Parent    *uint64  `json:"parent_block_hash"`
		Tokens    []uint32 `json:"token_ids"`
		BlockSize int      `json:"block_size"`
	}{BlockSize: 16}
	if dir := os.Getenv(envData); dir != "" {
		raw, err := os.ReadFile(filepath.Join(dir, "kv_event_base.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &event))
	} else {
		event.Hashes, event.Tokens = ids(1, 25), prompt(1, 25*16)
	}
	require.Len(t, event.Hashes, 25)
	r := rig.Standalone(t)
	p := pod.Start(t, "--redis", r.URL())
	e := newSimEngine(t, 0)
	startSidecar(t, r.URL(), e, model, "r")
	e.publish([]any{"BlockStored", event.Hashes, event.Parent, event.Tokens, event.BlockSize, nil})
	rig.Eventually(t, settleLimit, "all blocks of the prompt", hinted(t, p, model, event.Tokens, "", "r", 25*16))
}

// BenchmarkHowLongAChangeTakesToShow measures from the publisher's send to the first LookupRoute that shows it, in
// the later one of two pods, in ms: -benchtime 300x, on a machine that does nothing else.
func BenchmarkHowLongAChangeTakesToShow(b *testing.B) {
	r := rig.Standalone(b)
	pods := []*pod.Pod{pod.Start(b, "--redis", r.URL()), pod.Start(b, "--redis", r.URL())}
	e := newSimEngine(b, 0)
	startSidecar(b, r.URL(), e, model, "r")
	rng := rand.New(rand.NewPCG(1, 1))
	shows := func(chain []uint64, replica string, blocks int) time.Duration {
		begin := time.Now()
		var wg sync.WaitGroup
		for _, p := range pods {
			wg.Go(func() {
				for hinted(b, p, model, tokensOf(chain...), "", replica, engineBlock*blocks)() != nil && time.Since(begin) < settleLimit {
					time.Sleep(200 * time.Microsecond)
				}
			})
		}
		wg.Wait()
		return time.Since(begin)
	}
	var stored, removed []time.Duration
	for n := 0; b.Loop(); n++ {
		chain := ids(n+1, 8)
		time.Sleep(time.Duration(rng.Int64N(20_000_000)))
		e.publish(e.stored(chain, 0))
		stored = append(stored, shows(chain, "r", 8))
		time.Sleep(time.Duration(rng.Int64N(20_000_000)))
		e.publish(e.removed(chain...))
		removed = append(removed, shows(chain, "", 0))
	}
	for what, all := range map[string][]time.Duration{"stored": stored, "removed": removed} {
		slices.Sort(all)
		ms := func(share float64) float64 { return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000 }
		b.ReportMetric(ms(0.5), what+"-p50-ms")
		b.ReportMetric(ms(0.99), what+"-p99-ms")
	}
}
