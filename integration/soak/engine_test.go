package soak

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/replay"
	"inferencecache.io/lookuptier/sidecar/publisher"
)

// engine publishes what an engine with a bounded cache would, and a real kvsidecar
// beside it writes that to Redis.
type engine struct {
	t       testing.TB
	replica string
	blocks  int
	flags   []string // of the sidecar
	side    *rig.Process

	mu    sync.Mutex
	opts  publisher.Options
	pub   *publisher.Publisher // nil while the engine is down
	cache *replay.Cache
	salt  uint64 // of this life's block hashes
}

func startEngine(t testing.TB, replica, redisURL string, blocks int, flags ...string) *engine {
	t.Helper()
	e := &engine{t: t, replica: replica, blocks: blocks,
		// An engine's replay buffer ends somewhere; here the index has to be exact in the end.
		opts: publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Buffer: 1 << 20}}
	e.start()
	e.flags = append([]string{"--replica-id", replica, "--model-id", model, "--tenant-id", tenant, "--hash-scheme", scheme,
		"--redis", redisURL, "--engine-endpoint", e.opts.Endpoint, "--engine-replay-endpoint", e.opts.Replay,
		"--engine-metrics-url=", "--http-bind-address", "127.0.0.1:0", "--lease", "5s"}, flags...)
	e.startSidecar()
	t.Cleanup(e.kill)
	return e
}

// start begins a life with an empty cache.
func (e *engine) start() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	rig.Eventually(e.t, time.Minute, "an engine's sockets", func() (err error) {
		e.pub, err = publisher.Listen(e.t.Context(), e.opts)
		return err
	})
	e.opts.Endpoint, e.opts.Replay = e.pub.Endpoints()
	e.cache, e.salt = replay.NewCache(e.blocks), e.salt+1
}

func (e *engine) kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pub != nil {
		_ = e.pub.Close()
		e.pub = nil
	}
}

func (e *engine) startSidecar() { e.side = e.runSidecar() }

// runSidecar starts one more; flags win over the engine's own.
func (e *engine) runSidecar(flags ...string) *rig.Process {
	e.t.Helper()
	log := filepath.Join(e.t.TempDir(), "kvsidecar.log")
	rig.LogOnFailure(e.t, "kvsidecar of "+e.replica, log)
	p, err := rig.Start(e.t, "kvsidecar", log, pod.Binary(e.t, "kvsidecar"), slices.Concat(e.flags, flags), nil)
	require.NoError(e.t, err)
	e.t.Cleanup(func() {
		if out := p.Output(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") {
			e.t.Errorf("kvsidecar raced or panicked:\n%s", out)
		}
	})
	return p
}

// serve runs a prompt through the cache and publishes what that changed.
func (e *engine) serve(p *prompt) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pub == nil {
		return nil
	}
	d := e.cache.Serve(p.ids)
	var events []any
	if len(d.Evicted) > 0 {
		events = append(events, []any{"BlockRemoved", e.hashes(d.Evicted)})
	}
	if d.Stored > 0 {
		var parent any
		if d.Reused > 0 {
			parent = e.hashes(p.ids[d.Reused-1 : d.Reused])[0]
		}
		end := d.Reused + d.Stored
		events = append(events, []any{"BlockStored", e.hashes(p.ids[d.Reused:end]), parent, p.tokens[d.Reused*engineBlock : end*engineBlock], engineBlock, nil})
	}
	if len(events) == 0 {
		return nil
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	if err := enc.Encode([]any{float64(time.Now().UnixMicro()) / 1e6, events}); err != nil {
		return err
	}
	e.pub.Publish(buf.Bytes())
	return nil
}

// hashes are the engine's own names of blocks; they mean nothing outside of it.
func (e *engine) hashes(ids []uint64) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = (id+1)*0x9e3779b97f4a7c15 ^ e.salt
	}
	return out
}

func (e *engine) name() string { return e.replica }

func (e *engine) holds(w *world) map[string]uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return held(w, e.cache)
}

// serveUntil sends prompts at about this rate until stop is closed.
func serveUntil(stop <-chan struct{}, w *world, seed uint64, every time.Duration, serve func(*prompt) error) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	tick := time.NewTicker(every)
	defer tick.Stop()
	var failed error
	for {
		select {
		case <-stop:
			return failed
		case <-tick.C:
			failed = errors.Join(failed, serve(&w.prompts[rng.IntN(len(w.prompts))]))
		}
	}
}
