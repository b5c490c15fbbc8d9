package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"inferencecache.io/lookuptier/client"
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// blockSize is that of the fake engines, and must be the lookup pods' --engine-block-size.
const blockSize = 16

// fakeEngine answers completions without a model: it remembers the blocks of each
// prompt as an engine's KV cache would, says how many it knew, and reports the rest
// as an engine's sidecar would.
type fakeEngine struct {
	replica, url   string
	tenant, scheme string
	reporter       *client.Reporter
	stop           context.CancelFunc
	served         chan struct{}

	mu     sync.Mutex
	blocks map[string]bool // by prefix hash
}

func startFakeEngine(ctx context.Context, tier *client.Client, replica, tenant, scheme string) (*fakeEngine, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	reporter, err := tier.NewReporter(client.ReporterOptions{WhenFull: client.DropOldest})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	e := &fakeEngine{replica: replica, url: "http://" + l.Addr().String(), tenant: tenant, scheme: scheme,
		reporter: reporter, stop: stop, served: make(chan struct{}), blocks: map[string]bool{}}
	go func() {
		defer close(e.served)
		_ = serve(ctx, l, e)
	}()
	return e, nil
}

func (e *fakeEngine) close(ctx context.Context) {
	e.stop()
	<-e.served
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = e.reporter.Close(ctx) // its cache ends with it: there is nothing left to report
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model  string   `json:"model"`
		Prompt []uint32 `json:"prompt"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, "a fake engine takes token ids: "+err.Error(), http.StatusBadRequest)
		return
	}
	hashes := ranking.AppendFingerprints(nil, nil, in.Prompt, blockSize)
	cached := e.remember(slices.Collect(slices.Chunk(hashes, ranking.FingerprintBytes)))
	if len(hashes) > 0 {
		_ = e.reporter.Report(r.Context(), &pb.CacheStateUpdate{
			TenantId: e.tenant, ModelId: in.Model, HashScheme: e.scheme, ReplicaId: e.replica,
			Prefixes: []*pb.PrefixEntry{{
				PackedBlockHashes: hashes, PackedHashBytes: ranking.FingerprintBytes, BlockTokenCounts: []int32{blockSize},
			}},
		})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"object": "text_completion", "model": in.Model,
		"choices": []any{map[string]any{"index": 0, "text": " Yes.", "finish_reason": "stop"}},
		"usage": map[string]any{
			"prompt_tokens": len(in.Prompt), "completion_tokens": 2,
			"prompt_tokens_details": map[string]any{"cached_tokens": cached * blockSize},
		},
	})
}

// remember adds blocks, and counts the leading ones that were there.
func (e *fakeEngine) remember(blocks [][]byte) (known int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, b := range blocks {
		if e.blocks[string(b)] && known == i {
			known++
		}
		e.blocks[string(b)] = true
	}
	return known
}
