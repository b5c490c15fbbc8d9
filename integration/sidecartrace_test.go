package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/replay"
)

// envData names a directory with conversation_trace.jsonl; without it a generated trace is played.
const envData = "LOOKUPTIER_DATA"

// conversations reads a trace, and says which.
func conversations(t *testing.T) (requests []replay.Request, name string) {
	t.Helper()
	const blockTokens = 512
	text, name := &bytes.Buffer{}, "a generated trace"
	if dir := os.Getenv(envData); dir != "" {
		name = "conversation_trace.jsonl"
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		text.Write(raw)
	} else {
		require.NoError(t, replay.Generate(text, replay.GenerateOptions{Requests: 400, BlockTokens: blockTokens, Seed: 1}))
	}
	requests, err := replay.NewReader(text, name, blockTokens).ReadAll(0)
	require.NoError(t, err)
	return requests, name
}

// TestAConversationTraceThroughRealSidecars plays a trace on four simulated engines. Each prompt asks a lookup pod,
// goes to the best hint, else in turn, and changes that engine's cache, which its own kvsidecar then
// writes. At the end the index is compared with the caches, block by block, in Redis and through the pod.
func TestAConversationTraceThroughRealSidecars(t *testing.T) {
	t.Parallel()
	const engines = 4
	requests, name := conversations(t)
	distinct, references := map[uint64]bool{}, 0
	for i := range requests {
		references += len(requests[i].Blocks)
		for _, id := range requests[i].Blocks {
			distinct[id] = true
		}
	}
	blocks := max(len(distinct)/10, 120) // so that much is evicted

	policies := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(policies, "all.yaml"), []byte(`
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: all, namespace: t}
spec: {minimumMatchedTokens: 0, routingFloorScore: "0"}
`), 0o600))
	r := rig.Standalone(t)
	p := pod.Start(t, "--redis", r.URL(), "--policy-dir", policies)
	var sims []*simEngine
	var sides []*sidecarProcess
	number := map[string]int{}
	for i := range engines {
		id := fmt.Sprint("engine-", i)
		number[id] = i
		e := newSimEngine(t, blocks)
		e.salt = uint64(i) + 1
		sims = append(sims, e)
		sides = append(sides, startSidecar(t, r.URL(), e, model, id))
	}
	ask := func(chain []uint64) *pb.LookupRouteResponse {
		reply, err := p.Client.LookupRoute(t.Context(), lookupByTokens(model, tokensOf(chain...), ""))
		require.NoError(t, err)
		return reply
	}

	begin := time.Now()
	var hints, reused, promised, kept, evicted int
	for i := range requests {
		chain := requests[i].Blocks
		to := i % engines
		matched := 0
		// The policy lets every match through, for the comparison at the end. A router needs more: what all prompts
		// begin with would send all of them to one engine.
		if reply := ask(chain); reply.GetReasonCode() == "PREFIX_MATCH" && reply.GetReplicaScores()[0].GetMatchedTokens() >= 64 {
			hints++
			to = number[reply.GetReplicaScores()[0].GetReplicaId()]
			matched = int(reply.GetReplicaScores()[0].GetMatchedTokens()) / engineBlock
		}
		d := sims[to].serve(chain)
		reused, evicted = reused+d.Reused, evicted+len(d.Evicted)
		promised, kept = promised+matched, kept+min(matched, d.Reused)
	}
	took := time.Since(begin)
	t.Logf("%s: %d requests, %d block references, %d distinct, on %d engines of %d blocks in %v", name, len(requests), references, len(distinct), engines, blocks, took.Round(time.Millisecond))
	t.Logf("%d hints; %.1f %% of the references reused, %d evicted; hints promised %d blocks, and the engine still had %.3f %% of them",
		hints, 100*float64(reused)/float64(references), evicted, promised, 100*float64(kept)/float64(max(promised, 1)))

	fingerprints := fingerprintsOf(requests)
	rdb := r.Client()
	rig.Eventually(t, settleLimit, "the index being the engines' caches", func() error {
		for i, e := range sims {
			if err := differs(t, rdb, model, fmt.Sprint("engine-", i), e, fingerprints); err != nil {
				return err
			}
		}
		return nil
	})
	resident := 0.0
	for _, s := range sides {
		resident += s.metric("kvsidecar_blocks_resident")
		require.Zero(t, s.metric("kvsidecar_lost_batches_total"))
	}
	t.Logf("%d blocks compared on each engine, %.0f resident, no difference", len(fingerprints), resident)

	// And through the pod: the run of each engine, for prompts of the whole trace.
	step := max(len(requests)/500, 1)
	for i := 0; i < len(requests); i += step {
		chain := requests[i].Blocks
		want := map[string]int32{}
		for n, e := range sims {
			run := 0
			for run < len(chain) && e.cache.Contains(chain[run]) {
				run++
			}
			if run > 0 {
				want[fmt.Sprint("engine-", n)] = int32(run * engineBlock)
			}
		}
		rig.Eventually(t, settleLimit, "a lookup that says what each engine has", func() error {
			got := map[string]int32{}
			if reply := ask(chain); reply.GetReasonCode() == "PREFIX_MATCH" {
				for _, s := range reply.GetReplicaScores() {
					got[s.GetReplicaId()] = s.GetMatchedTokens()
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		})
	}
}

// fingerprint is a block's name in the index, and how many tokens lead to its end.
type fingerprint struct {
	hash   string
	tokens uint32
}

func fingerprintsOf(requests []replay.Request) map[uint64]fingerprint {
	all := map[uint64]fingerprint{}
	for i := range requests {
		chain := requests[i].Blocks
		if _, known := all[chain[len(chain)-1]]; known {
			continue
		}
		fps := string(ranking.AppendFingerprints(nil, nil, tokensOf(chain...), engineBlock))
		for n, id := range chain {
			all[id] = fingerprint{hash: fps[ranking.FingerprintBytes*n : ranking.FingerprintBytes*(n+1)], tokens: uint32(engineBlock * (n + 1))}
		}
	}
	return all
}
