package sidecar_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar"
	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/sidecar/writer"
	"inferencecache.io/lookuptier/store"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // of every dial that a fault refuses
	goleak.VerifyTestMain(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// patience is for a busy machine; nothing waits that long when all is well.
const patience = 40 * time.Second

type list = []any
type dict = map[string]any

// engine is a real libzmq publisher in a process of its own.
type engine struct {
	t              testing.TB
	cmd            *exec.Cmd
	in             io.WriteCloser
	out            *bufio.Reader
	events, replay string
}

func startEngine(t testing.TB, bind, replay string, keep int, form string) *engine {
	t.Helper()
	e := &engine{t: t, cmd: exec.Command(rig.RequirePython(t, "zmq", "msgpack"), "testdata/engine.py", bind, replay, strconv.Itoa(keep), form)}
	e.cmd.Stderr = os.Stderr
	in, err := e.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := e.cmd.StdoutPipe()
	require.NoError(t, err)
	e.in, e.out = in, bufio.NewReader(out)
	require.NoError(t, e.cmd.Start())
	t.Cleanup(e.kill)
	line, err := e.out.ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscanf(line, "events %s replay %s", &e.events, &e.replay)
	require.NoError(t, err, line)
	return e
}

func newEngine(t testing.TB) *engine {
	return startEngine(t, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", 10_000, "older")
}

// kill is SIGKILL. The process is only this test's own.
func (e *engine) kill() {
	if e.cmd.ProcessState == nil {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
	}
}

func (e *engine) do(command dict) {
	e.t.Helper()
	raw, err := json.Marshal(command)
	require.NoError(e.t, err)
	_, err = e.in.Write(append(raw, '\n'))
	require.NoError(e.t, err)
	line, err := e.out.ReadString('\n')
	require.NoError(e.t, err)
	require.Contains(e.t, line, "ok")
}

func now() float64 { return float64(time.Now().UnixMilli()) / 1000 }

func (e *engine) publish(events ...any) {
	e.t.Helper()
	e.do(dict{"op": "publish", "batch": list{now(), events}})
}

func (e *engine) swallow(events ...any) {
	e.t.Helper()
	e.do(dict{"op": "swallow", "batch": list{now(), events}})
}

// tier is one Redis and what the sidecar under test writes into it.
type tier struct {
	t     testing.TB
	store *store.Store
	scope ranking.Scope
}

func newTier(t testing.TB, url string) *tier {
	t.Helper()
	client, err := store.Dial(store.DialOptions{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, err := store.New(store.Options{Redis: client, Logger: quiet})
	require.NoError(t, err)
	return &tier{t: t, store: s, scope: ranking.Scope{Tenant: "t", Model: "m"}}
}

var quiet = slog.New(slog.DiscardHandler)

const scheme = "vllm"

// match is what a lookup for the tokens finds: "replica blocks tier" for each, sorted; "" is nothing.
func (x *tier) match(tokens []uint32, blockSize int, adapter string) string {
	fps := ranking.AppendFingerprints(nil, nil, tokens, blockSize)
	q := &ranking.Query{Scope: x.scope, Space: ranking.Space{Scheme: scheme, Adapter: adapter}, TTLMS: 1_800_000}
	for b := range slices.Chunk(fps, ranking.FingerprintBytes) {
		q.Hashes, q.Tokens = append(q.Hashes, b), append(q.Tokens, int32(blockSize))
	}
	var ev ranking.Evidence
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Second)
	defer cancel()
	if err := x.store.Match(ctx, q, &ev); err != nil {
		return err.Error()
	}
	var out []string
	for _, r := range ev.Runs {
		out = append(out, fmt.Sprintf("%s %d T%d", ev.Serving[r.Replica].ID, r.Blocks, r.Tier))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (x *tier) eventually(want string, tokens []uint32, blockSize int, adapter string) {
	x.t.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = x.match(tokens, blockSize, adapter); got == want {
			return
		}
	}
	x.t.Fatalf("a lookup finds %q, want %q", got, want)
}

func config(e *engine) sidecar.Config {
	return sidecar.Config{
		Scope: ranking.Scope{Tenant: "t", Model: "m"}, Replica: "r", Scheme: scheme,
		Endpoints: []string{e.events}, Replays: []string{e.replay},
		Follow: follow.Options{Heartbeat: 500 * time.Millisecond, Probe: 2 * time.Second},
		Mirror: mirror.Options{Adapters: map[int64]string{3: "sql"}},
		Writer: writer.Options{Lease: 2 * time.Second, Timeout: time.Second},
		Logger: quiet,
	}
}

// run starts a sidecar; the function it returns ends it as SIGTERM would.
func run(t testing.TB, x *tier, c sidecar.Config) (*sidecar.Sidecar, func()) {
	t.Helper()
	s, err := sidecar.New(x.store, c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return s, stop
}

func ready(t testing.TB, s *sidecar.Sidecar) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Ready() == nil }, patience, 5*time.Millisecond)
}

// toks makes the tokens of blocks: block n has 4 of its own.
func toks(ns ...int) []uint32 {
	var out []uint32
	for _, n := range ns {
		for i := range 4 {
			out = append(out, uint32(1000*n+i))
		}
	}
	return out
}

func anyOf(tokens []uint32) list {
	out := list{}
	for _, t := range tokens {
		out = append(out, t)
	}
	return out
}

func TestEveryShapeOfPayloadFromARealPublisher(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	s, _ := run(t, x, config(e))
	ready(t, s)
	raw := func(b byte) dict { return dict{"$hex": strings.Repeat(fmt.Sprintf("%02x", b), 32)} }

	// An old array, a suffix in another event, signed and unsigned names of one hash.
	e.publish(list{"BlockStored", list{1}, nil, anyOf(toks(1)), 4, nil})
	e.publish(list{"BlockStored", list{int64(-2)}, 1, anyOf(toks(2)), 4, nil, "GPU"},
		list{"BlockStored", list{3}, uint64(1<<64 - 2), anyOf(toks(3)), 4, nil, "GPU", nil, list{nil}, 0, "full_attention", nil})
	x.eventually("r 3 T1", toks(1, 2, 3), 4, "")

	// Maps, hashes as bytes, two media.
	stored := dict{"type": "BlockStored", "block_hashes": list{raw(1), raw(2)}, "parent_block_hash": nil,
		"token_ids": anyOf(toks(10, 11)), "block_size": 4, "lora_id": nil, "later_field": 1}
	onCPU := dict{"type": "BlockStored", "block_hashes": list{raw(1), raw(2)}, "token_ids": list{}, "block_size": 4, "medium": "CPU", "parent_block_hash": nil}
	e.do(dict{"op": "publish", "batch": dict{"ts": now(), "events": list{stored, list{"FutureEvent", 1}}, "data_parallel_rank": nil}})
	x.eventually("r 2 T1", toks(10, 11), 4, "")
	e.publish(onCPU, dict{"type": "BlockRemoved", "block_hashes": list{raw(1), raw(2)}, "medium": "GPU"})
	x.eventually("r 2 T2", toks(10, 11), 4, "")

	// Adapters by name and by number; one that nobody can name, and extra keys, stay out.
	e.publish(list{"BlockStored", list{20}, nil, anyOf(toks(20)), 4, 9, nil, "french", list{list{"french"}}},
		list{"BlockStored", list{21}, nil, anyOf(toks(21)), 4, 3},
		list{"BlockStored", list{22}, nil, anyOf(toks(22)), 4, 7},
		list{"BlockStored", list{23, 24}, nil, anyOf(toks(23, 24)), 4, nil, nil, nil, list{nil, list{"image"}}},
		list{"BlockStored", list{25}, nil, anyOf(toks(25)), 4, nil, nil, nil, nil, 1, "sliding_window", 128},
		list{"BlockStored", list{26}, nil, anyOf(toks(26)), 4, nil})
	x.eventually("r 1 T1", toks(26), 4, "")
	require.Equal(t, "r 1 T1", x.match(toks(20), 4, "french"))
	require.Empty(t, x.match(toks(20), 4, ""))
	require.Equal(t, "r 1 T1", x.match(toks(21), 4, "sql"))
	require.Empty(t, x.match(toks(22), 4, ""))
	require.Equal(t, "r 1 T1", x.match(toks(23, 24), 4, ""))
	require.Empty(t, x.match(toks(25), 4, ""))

	// Gone again: one, and then all.
	e.publish(list{"BlockRemoved", list{3}}, list{"BlockRemoved", list{999}})
	x.eventually("r 2 T1", toks(1, 2, 3), 4, "")
	e.publish(list{"AllBlocksCleared"}, list{"BlockStored", list{30}, nil, anyOf(toks(30)), 4, nil})
	x.eventually("r 1 T1", toks(30), 4, "")
	require.Empty(t, x.match(toks(1, 2, 3), 4, ""))
	require.Empty(t, x.match(toks(21), 4, "sql"))
}

func TestAnEndedSidecarLeavesNoGhost(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	s, stop := run(t, x, config(e))
	ready(t, s)
	e.publish(list{"BlockStored", list{1}, nil, anyOf(toks(1)), 4, nil})
	x.eventually("r 1 T1", toks(1), 4, "")
	stop()
	require.Empty(t, x.match(toks(1), 4, ""))
}

func TestAnIdleEngineWithoutALeaseIsReadyToo(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	c := config(newEngine(t))
	c.Writer.Lease = -1
	s, _ := run(t, x, c)
	ready(t, s)
}

func TestAKeptReplicaServesOnUntilItsLeaseRunsOutAndIsTakenOver(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	c := config(e)
	c.Keep, c.Writer.Lease = true, 3*time.Second
	_, stop := run(t, x, c)
	e.publish(list{"BlockStored", list{1}, nil, anyOf(toks(1)), 4, nil})
	x.eventually("r 1 T1", toks(1), 4, "")
	stop()
	require.Equal(t, "r 1 T1", x.match(toks(1), 4, ""))
	x.eventually("", toks(1), 4, "")
	e.swallow(list{"BlockStored", list{2}, 1, anyOf(toks(2)), 4, nil})
	run(t, x, c)
	x.eventually("r 2 T1", toks(1, 2), 4, "")
}

func TestAKilledEngineIsGoneWithinALeaseAndItsSuccessorStartsClean(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	s, _ := run(t, x, config(e))
	ready(t, s)
	e.publish(list{"BlockStored", list{1}, nil, anyOf(toks(1)), 4, nil})
	x.eventually("r 1 T1", toks(1), 4, "")
	e.kill()
	x.eventually("", toks(1), 4, "")
	e2 := startEngine(t, e.events, e.replay, 100, "newer")
	ready(t, s)
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, x.match(toks(1), 4, ""), "the new engine has said nothing, and its cache is empty")
	e2.publish(list{"BlockStored", list{2}, nil, anyOf(toks(2)), 4, nil})
	x.eventually("r 1 T1", toks(2), 4, "")
}

func TestGapsInsideAndBeyondTheBuffer(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := startEngine(t, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", 4, "newer")
	s, _ := run(t, x, config(e))
	ready(t, s)
	e.publish(list{"BlockStored", list{1, 2}, nil, anyOf(toks(1, 2)), 4, nil}, list{"BlockStored", list{9}, nil, anyOf(toks(9)), 4, nil})
	x.eventually("r 2 T1", toks(1, 2), 4, "")
	e.swallow(list{"BlockStored", list{3}, 2, anyOf(toks(3)), 4, nil})
	e.publish(list{"BlockStored", list{4}, 3, anyOf(toks(4)), 4, nil})
	x.eventually("r 4 T1", toks(1, 2, 3, 4), 4, "")
	for range 6 {
		e.swallow(list{"BlockRemoved", list{9}})
	}
	e.publish(list{"BlockStored", list{5}, 2, anyOf(toks(5)), 4, nil})
	x.eventually("r 3 T1", toks(1, 2, 5), 4, "") // proved by what was built on it
	require.Empty(t, x.match(toks(9), 4, ""))
	require.Equal(t, "r 2 T1", x.match(toks(1, 2, 3, 4), 4, ""), "3 and 4 may be gone")
}

func TestALateSidecarReadsThePast(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	for n := 1; n <= 300; n++ {
		e.publish(list{"BlockStored", list{n}, nil, anyOf(toks(n)), 4, nil})
	}
	e.publish(list{"BlockRemoved", list{7}})
	s, _ := run(t, x, config(e))
	ready(t, s)
	x.eventually("r 1 T1", toks(300), 4, "")
	x.eventually("", toks(7), 4, "")
	require.Equal(t, "r 1 T1", x.match(toks(1), 4, ""))
}

func TestRanksAreReplicasOfTheirOwn(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	s, _ := run(t, x, config(e))
	ready(t, s)
	ranked := func(rank, n int) {
		e.do(dict{"op": "publish", "batch": list{now(), list{list{"BlockStored", list{n}, nil, anyOf(toks(n)), 4, nil}}, rank}})
	}
	ranked(2, 1)
	x.eventually("r 1 T1", toks(1), 4, "")
	ranked(3, 1)
	x.eventually("r@dp2 1 T1, r@dp3 1 T1", toks(1), 4, "")
	require.Equal(t, []string{"r@dp2", "r@dp3"}, s.Replicas())
}

func TestRedisKilledAndRestartedEmptyGetsEverythingBack(t *testing.T) {
	r := rig.Standalone(t)
	x := newTier(t, r.URL())
	e := newEngine(t)
	s, _ := run(t, x, config(e))
	ready(t, s)
	e.publish(list{"BlockStored", list{1, 2}, nil, anyOf(toks(1, 2)), 4, nil})
	x.eventually("r 2 T1", toks(1, 2), 4, "")
	r.Kill()
	e.publish(list{"BlockStored", list{3}, 2, anyOf(toks(3)), 4, nil}, list{"BlockStored", list{8}, nil, anyOf(toks(8)), 4, nil})
	e.publish(list{"BlockRemoved", list{8}})
	r.Restart()
	x.eventually("r 3 T1", toks(1, 2, 3), 4, "")
	x.eventually("", toks(8), 4, "")
}

// capturedEvent is an event that vLLM sent, and the prompt's tokens.
type capturedEvent struct {
	Hashes    []uint64 `json:"block_hashes"`
	Parent    *uint64  `json:"parent_block_hash"`
	Tokens    []uint32 `json:"token_ids"`
	BlockSize int      `json:"block_size"`
}

// captured reads the event from the directory in LOOKUPTIER_DATA, or makes one of the same form.
func captured(t *testing.T) capturedEvent {
	var c capturedEvent
	if dir := os.Getenv("LOOKUPTIER_DATA"); dir != "" {
		raw, err := os.ReadFile(dir + "/kv_event_base.json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &c))
		require.Len(t, c.Hashes, 25)
		return c
	}
	c.BlockSize = 16
	for n := range 25 {
		c.Hashes = append(c.Hashes, uint64(n+1)*0x9e3779b97f4a7c15)
		for i := range 16 {
			c.Tokens = append(c.Tokens, uint32(n*31+i*7)%151_936)
		}
	}
	return c
}

func TestACapturedEventIsMatchedBlockByBlock(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	run(t, x, config(e))
	c := captured(t)
	e.publish(list{"BlockStored", c.Hashes, c.Parent, anyOf(c.Tokens), c.BlockSize, nil})
	x.eventually(fmt.Sprintf("r %d T1", len(c.Hashes)), c.Tokens, c.BlockSize, "")
}

func TestAMissingIdentityIsRefusedByName(t *testing.T) {
	_, err := sidecar.New(nil, sidecar.Config{})
	for _, flag := range []string{"--replica-id", "--model-id", "--tenant-id", "--hash-scheme", "--engine-endpoint"} {
		require.ErrorContains(t, err, flag)
	}
}
