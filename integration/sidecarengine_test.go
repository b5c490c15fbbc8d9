package integration_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/replay"
	"inferencecache.io/lookuptier/sidecar/publisher"
	"inferencecache.io/lookuptier/store"
)

// engineBlock is how many tokens a simulated engine's block has.
const engineBlock = 16

// simEngine publishes what an engine with a bounded cache would.
type simEngine struct {
	t     testing.TB
	pub   *publisher.Publisher
	opts  publisher.Options
	cache *replay.Cache
	salt  uint64 // of this process' hashes
}

func newSimEngine(t testing.TB, blocks int) *simEngine {
	t.Helper()
	e := &simEngine{t: t, cache: replay.NewCache(blocks), salt: 1,
		opts: publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"}}
	e.listen()
	t.Cleanup(e.kill)
	return e
}

func (e *simEngine) listen() {
	rig.Eventually(e.t, settleLimit, "an engine's sockets", func() (err error) {
		e.pub, err = publisher.Listen(e.t.Context(), e.opts)
		return err
	})
	e.opts.Endpoint, e.opts.Replay = e.pub.Endpoints()
}

func (e *simEngine) kill() {
	if e.pub != nil {
		_ = e.pub.Close()
		e.pub = nil
	}
}

// tokensOf makes the tokens of a block that the ids name; equal ids have equal tokens.
func tokensOf(ids ...uint64) []uint32 {
	out := make([]uint32, 0, engineBlock*len(ids))
	for _, id := range ids {
		for i := range uint64(engineBlock) {
			out = append(out, uint32(id)*2_654_435_761+uint32(i))
		}
	}
	return out
}

// hashesOf are the engine's own names of blocks; they mean nothing outside of it.
func (e *simEngine) hashesOf(ids []uint64) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = (id+1)*0x9e3779b97f4a7c15 ^ e.salt
	}
	return out
}

func (e *simEngine) stored(chain []uint64, from int) []any {
	var parent any
	if from > 0 {
		parent = e.hashesOf(chain[from-1 : from])[0]
	}
	return []any{"BlockStored", e.hashesOf(chain[from:]), parent, tokensOf(chain[from:]...), engineBlock, nil}
}

func (e *simEngine) removed(ids ...uint64) []any { return []any{"BlockRemoved", e.hashesOf(ids)} }

// serve runs a prompt through the cache and publishes what that changed.
func (e *simEngine) serve(chain []uint64) replay.Delta {
	d, events := e.change(chain)
	if len(events) > 0 {
		e.publish(events...)
	}
	return d
}

func (e *simEngine) change(chain []uint64) (d replay.Delta, events []any) {
	d = e.cache.Serve(chain)
	if len(d.Evicted) > 0 {
		events = append(events, e.removed(d.Evicted...))
	}
	if d.Stored > 0 {
		events = append(events, e.stored(chain[:d.Reused+d.Stored], d.Reused))
	}
	return d, events
}

func (e *simEngine) publish(events ...any) {
	e.t.Helper()
	e.pub.Publish(e.payload(time.Now(), events))
}

func (e *simEngine) payload(at time.Time, events []any) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	require.NoError(e.t, enc.Encode([]any{float64(at.UnixMicro()) / 1e6, events}))
	return buf.Bytes()
}

// sidecarProcess is a running kvsidecar.
type sidecarProcess struct {
	t    testing.TB
	proc *rig.Process
	http string
}

// startSidecar runs kvsidecar for an engine and waits until it is ready.
func startSidecar(t testing.TB, redisURL string, e *simEngine, model, replica string, flags ...string) *sidecarProcess {
	t.Helper()
	log := filepath.Join(t.TempDir(), "kvsidecar.log")
	rig.LogOnFailure(t, "kvsidecar", log)
	args := append([]string{"--replica-id", replica, "--model-id", model, "--tenant-id", "t", "--hash-scheme", scheme, "--redis", redisURL,
		"--engine-endpoint", e.opts.Endpoint, "--engine-replay-endpoint", e.opts.Replay, "--engine-metrics-url=", "--http-bind-address", "127.0.0.1:0"}, flags...)
	proc, err := rig.Start(t, "kvsidecar", log, pod.Binary(t, "kvsidecar"), args, nil)
	require.NoError(t, err)
	s := &sidecarProcess{t: t, proc: proc}
	t.Cleanup(func() {
		if out := proc.Output(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") {
			t.Errorf("kvsidecar raced or panicked:\n%s", out)
		}
	})
	rig.Eventually(t, settleLimit, "kvsidecar listening", func() error {
		for line := range strings.Lines(proc.Output()) {
			var l struct{ HTTP string }
			if json.Unmarshal([]byte(line), &l) == nil && l.HTTP != "" {
				s.http = l.HTTP
				return nil
			}
		}
		return fmt.Errorf("it says\n%s", proc.Output())
	})
	rig.Eventually(t, settleLimit, "kvsidecar ready", func() error {
		status, body := s.get("/readyz")
		if status != http.StatusOK {
			return fmt.Errorf("%d: %s", status, body)
		}
		return nil
	})
	return s
}

func (s *sidecarProcess) get(path string) (int, string) {
	resp, err := http.Get("http://" + s.http + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// metric is a series of the sidecar, named with its labels as /metrics prints it.
func (s *sidecarProcess) metric(name string) float64 {
	s.t.Helper()
	status, page := s.get("/metrics")
	require.Equal(s.t, http.StatusOK, status)
	sum, found := 0.0, false
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			fields := strings.Fields(rest)
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(s.t, err)
			sum, found = sum+v, true
		}
	}
	require.True(s.t, found, "no series %s", name)
	return sum
}

func lookupByTokens(model string, tokens []uint32, adapter string) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{TenantId: "t", ModelId: model, HashScheme: scheme, TokenIds: tokens, AdapterId: adapter}
}

// hinted is nil if a lookup by token ids through the pod answers replica and matched tokens; an
// empty replica stands for no candidate at all.
func hinted(t testing.TB, p *pod.Pod, model string, tokens []uint32, adapter, replica string, matched int) func() error {
	return func() error {
		r, err := p.Client.LookupRoute(t.Context(), lookupByTokens(model, tokens, adapter))
		if err != nil {
			return err
		}
		got := ""
		if r.GetReasonCode() == "PREFIX_MATCH" {
			got = fmt.Sprint(r.GetReplicaScores()[0].GetReplicaId(), " ", r.GetReplicaScores()[0].GetMatchedTokens())
		}
		want := ""
		if replica != "" {
			want = fmt.Sprint(replica, " ", matched)
		}
		if got != want {
			return fmt.Errorf("%s %q, want %q", r.GetReasonCode(), got, want)
		}
		return nil
	}
}

// heldInRedis reads a space of a model as it lies in Redis, without the project's readers: which replica holds
// which hash, with how many tokens. Only records whose number is live count.
func heldInRedis(t testing.TB, rdb redis.UniversalClient, model, adapter string) map[string]map[string]uint32 {
	t.Helper()
	k := store.KeysOf(ranking.Scope{Tenant: "t", Model: model}, 0)
	records, err := rdb.HGetAll(t.Context(), k.Replicas()).Result()
	require.NoError(t, err)
	counts, err := rdb.HGetAll(t.Context(), k.Serving()).Result()
	require.NoError(t, err)
	blocks, err := rdb.HGetAll(t.Context(), k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: scheme, Adapter: adapter}))).Result()
	require.NoError(t, err)
	live, names := map[string]bool{}, map[string]string{}
	for field := range counts {
		live[field[2:]] = true
	}
	held := map[string]map[string]uint32{}
	for id, rec := range records {
		names[rec[:3]] = id
		held[id] = map[string]uint32{}
	}
	for hash, value := range blocks {
		require.Zero(t, len(value)%12)
		for at := 0; at < len(value); at += 12 {
			rec := value[at : at+12]
			if id, ok := names[rec[:3]]; ok && live[rec[:3]] {
				held[id][hash] = binary.BigEndian.Uint32([]byte(rec[8:])) & 0xffffff
			}
		}
	}
	return held
}
