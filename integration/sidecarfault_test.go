package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/replay"
)

// envCut is how long TestANetworkCut cuts, such as 60s.
const envCut = "LOOKUPTIER_CUT"

// prompts are requests of a generated trace, endlessly.
type prompts struct {
	requests []replay.Request
	next     int
}

func newPrompts(t testing.TB, seed uint64, requests int) *prompts {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, replay.Generate(&text, replay.GenerateOptions{Requests: requests, BlockTokens: 512, Seed: seed}))
	read, err := replay.NewReader(&text, "generated", 512).ReadAll(0)
	require.NoError(t, err)
	return &prompts{requests: read}
}

// run sends n of them to the engine.
func (p *prompts) run(e *simEngine, n int) {
	for range n {
		e.serve(p.requests[p.next%len(p.requests)].Blocks)
		p.next++
	}
}

// differs is nil if the index has of a replica what the engine has, block by block.
func differs(t testing.TB, rdb redis.UniversalClient, model, replica string, e *simEngine, all map[uint64]fingerprint) error {
	return differsFrom(heldInRedis(t, rdb, model, ""), replica, e, all)
}

func differsFrom(held map[string]map[string]uint32, replica string, e *simEngine, all map[uint64]fingerprint) error {
	mine := held[replica]
	wrong, missing := 0, 0
	for id, fp := range all {
		tokens, in := mine[fp.hash]
		switch {
		case in && !e.cache.Contains(id):
			wrong++
		case !in && e.cache.Contains(id):
			missing++
		case in && tokens != fp.tokens:
			return fmt.Errorf("%s: block %d has %d tokens, want %d", replica, id, tokens, fp.tokens)
		}
	}
	if wrong+missing > 0 || len(mine) != e.cache.Len() {
		return fmt.Errorf("%s: %d wrong, %d missing, %d held of the engine's %d", replica, wrong, missing, len(mine), e.cache.Len())
	}
	return nil
}

// TestASidecarKilledInTheMiddleOfTraffic: the replay buffer reaches back to the engine's first batch, so the next sidecar
// knows the cache exactly, and what the killed one left in the index is retired.
func TestASidecarKilledInTheMiddleOfTraffic(t *testing.T) {
	t.Parallel()
	r := rig.Standalone(t)
	e := newSimEngine(t, 120)
	traffic := newPrompts(t, 3, 600)
	all := fingerprintsOf(traffic.requests)
	side := startSidecar(t, r.URL(), e, model, "r", "--lease", "2s")
	for range 3 {
		traffic.run(e, 60)
		side.proc.Kill()
		traffic.run(e, 60)
		side = startSidecar(t, r.URL(), e, model, "r", "--lease", "2s")
		traffic.run(e, 20)
		rig.Eventually(t, settleLimit, "the index being the engine's cache", func() error { return differs(t, r.Client(), model, "r", e, all) })
	}
	require.Zero(t, side.metric("kvsidecar_lost_batches_total"))
}

// TestANetworkCut swallows all bytes, and closes nothing, between a sidecar and its engine and between another and
// its Redis. Hints go within a lease, traffic goes on, and afterwards both are right.
func TestANetworkCut(t *testing.T) {
	t.Parallel()
	long := 10 * time.Second // more than it takes to notice, and a lease
	if v := os.Getenv(envCut); v != "" {
		var err error
		long, err = time.ParseDuration(v)
		require.NoError(t, err)
	}
	for _, between := range []string{"the engine", "Redis"} {
		t.Run("to "+between, func(t *testing.T) {
			t.Parallel()
			r := rig.Standalone(t)
			p := pod.Start(t, "--redis", r.URL())
			e := newSimEngine(t, 120)
			traffic := newPrompts(t, 4, 600)
			all := fingerprintsOf(traffic.requests)
			proxies := []*rig.Proxy{rig.NewProxy(t, r.Addr())}
			url := "redis://" + proxies[0].Addr() + "/0"
			if between == "the engine" {
				url = r.URL()
				behind := e.opts
				for _, endpoint := range []*string{&e.opts.Endpoint, &e.opts.Replay} {
					proxy := rig.NewProxy(t, strings.TrimPrefix(*endpoint, "tcp://"))
					proxies = append(proxies, proxy)
					*endpoint = "tcp://" + proxy.Addr()
				}
				startSidecar(t, url, e, model, "r", "--lease", "2s")
				e.opts = behind
			} else {
				startSidecar(t, url, e, model, "r", "--lease", "2s")
			}
			traffic.run(e, 60)
			right := func() error { return differs(t, r.Client(), model, "r", e, all) }
			rig.Eventually(t, settleLimit, "the index being the engine's cache", right)
			hint := ids(7, 20)
			e.serve(hint)
			everyPod(t, []*pod.Pod{p}, "a stored prompt", hint, "r", 20)

			for _, proxy := range proxies {
				proxy.Blackhole()
			}
			end := time.After(long)
			everyPod(t, []*pod.Pod{p}, "nothing known after a lease", hint, "", 0)
			for cut := true; cut; {
				traffic.run(e, 5)
				select {
				case <-end:
					cut = false
				case <-time.After(200 * time.Millisecond):
				}
			}
			for _, proxy := range proxies {
				proxy.Resume()
			}
			traffic.run(e, 5)
			for id := range hint {
				require.False(t, e.cache.Contains(hint[id]), "the traffic has pushed it out")
			}
			rig.Eventually(t, settleLimit, "the index being the engine's cache again", right)
			require.NoError(t, hinted(t, p, model, tokensOf(hint...), "", "", 0)())
		})
	}
}
