package sidecar_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar"
	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/publisher"
	"inferencecache.io/lookuptier/sidecar/writer"
)

// envSeed repeats a chaos run.
const envSeed = "LOOKUPTIER_CHAOS_SEED"

// node is one block of the simulated engine: a child of its parent by its token.
type node struct {
	parent *node
	kids   map[int]*node
	tokens []uint32
	fp     uint64
	hash   uint64
	depth  int
	used   int // when, 0 = not in the cache
	inside int // children in the cache
}

// simulator is an engine: a tree of chains, a cache with least-recently-used leaves evicted first, and a
// publisher. Its cache is the truth that the index is compared with.
type simulator struct {
	t      testing.TB
	rng    *rand.Rand
	pub    *publisher.Publisher
	opts   publisher.Options
	root   *node
	all    []*node
	cached int
	limit  int
	clock  int
	salt   uint64 // of this process' hashes
}

func newSimulator(t testing.TB, rng *rand.Rand, o publisher.Options) *simulator {
	t.Helper()
	s := &simulator{t: t, rng: rng, root: &node{kids: map[int]*node{}}, limit: 60, opts: o, salt: rng.Uint64()}
	s.listen()
	t.Cleanup(func() { _ = s.pub.Close() })
	return s
}

func (s *simulator) listen() {
	require.Eventually(s.t, func() bool {
		var err error
		s.pub, err = publisher.Listen(s.t.Context(), s.opts)
		return err == nil
	}, patience, 10*time.Millisecond)
	s.opts.Endpoint, s.opts.Replay = s.pub.Endpoints()
}

// restart is a new process: an empty cache, other hashes, numbers from 0.
func (s *simulator) restart() {
	require.NoError(s.t, s.pub.Close())
	for _, n := range s.all {
		n.used, n.inside = 0, 0
	}
	s.cached, s.salt = 0, s.rng.Uint64()
	s.listen()
}

func (s *simulator) child(n *node, token int) *node {
	if k := n.kids[token]; k != nil {
		return k
	}
	k := &node{parent: n, kids: map[int]*node{}, depth: n.depth + 1, hash: s.rng.Uint64()}
	for i := range 4 {
		k.tokens = append(k.tokens, uint32(token*4+i))
	}
	k.fp = ranking.ContentHash(k.tokens)
	if n != s.root {
		k.fp = ranking.PrefixHash(n.fp, k.fp)
	}
	n.kids[token] = k
	s.all = append(s.all, k)
	return k
}

// request runs a prompt: what of it is missing is stored, and something else is evicted for it.
func (s *simulator) request() []any {
	s.clock++
	path := []*node{}
	for at := s.root; len(path) < 1+s.rng.IntN(8); {
		at = s.child(at, s.rng.IntN(3))
		path = append(path, at)
	}
	var events []any
	first := slices.IndexFunc(path, func(n *node) bool { return n.used == 0 })
	for _, n := range path {
		if n.used == 0 {
			s.cached++
			n.parent.inside++
		}
		n.used = s.clock
	}
	if first >= 0 {
		hashes, tokens, parent := []any{}, []any{}, any(nil)
		if first > 0 {
			parent = path[first-1].hash ^ s.salt
		}
		for _, n := range path[first:] {
			hashes = append(hashes, n.hash^s.salt)
			for _, t := range n.tokens {
				tokens = append(tokens, t)
			}
		}
		events = append(events, []any{"BlockStored", hashes, parent, tokens, 4, nil})
	}
	var gone []any
	for s.cached > s.limit {
		var oldest *node
		for _, n := range s.all {
			if n.used > 0 && n.used < s.clock && n.inside == 0 && (oldest == nil || n.used < oldest.used) {
				oldest = n
			}
		}
		gone = append(gone, oldest.hash^s.salt)
		s.drop(oldest)
	}
	if len(gone) > 0 {
		events = append(events, []any{"BlockRemoved", gone})
	}
	return events
}

func (s *simulator) drop(n *node) {
	n.used = 0
	n.parent.inside--
	s.cached--
}

func (s *simulator) reset() []any {
	for _, n := range s.all {
		n.used, n.inside = 0, 0
	}
	s.cached = 0
	return []any{[]any{"AllBlocksCleared"}}
}

func (s *simulator) payload(events []any) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	require.NoError(s.t, enc.Encode([]any{float64(time.Now().UnixMicro()) / 1e6, events}))
	return buf.Bytes()
}

// compare looks every block up that ever was. wrong are those that the index has and the engine has
// not; missing the other way round.
func (s *simulator) compare(x *tier) (wrong, missing int, err error) {
	for _, n := range s.all {
		fp := make([]byte, 0, 8)
		for i := range 8 {
			fp = append(fp, byte(n.fp>>(56-8*i)))
		}
		q := &ranking.Query{Scope: x.scope, Space: ranking.Space{Scheme: scheme}, Hashes: [][]byte{fp}, Exact: true, TTLMS: 1_800_000}
		var ev ranking.Evidence
		ctx, cancel := context.WithTimeout(x.t.Context(), 2*time.Second)
		err = x.store.Match(ctx, q, &ev)
		cancel()
		if err != nil {
			return 0, 0, err
		}
		switch has := len(ev.Runs) > 0; {
		case has && n.used == 0:
			wrong++
		case !has && n.used > 0:
			missing++
		case has && ev.Runs[0].Tokens != int64(4*n.depth):
			return 0, 0, fmt.Errorf("%d tokens at depth %d", ev.Runs[0].Tokens, n.depth)
		}
	}
	return wrong, missing, nil
}

func (s *simulator) settles(x *tier, may int, what string) {
	s.t.Helper()
	var wrong, missing int
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if wrong, missing, err = s.compare(x); err == nil && wrong == 0 && missing <= may {
			return
		}
	}
	s.t.Fatalf("%s: of %d blocks %d are wrong, %d missing (%d may be), error %v", what, len(s.all), wrong, missing, may, err)
}

// TestAfterAnyFaultTheIndexEqualsTheEnginesCache throws faults in a random order, each in the middle of
// traffic. After each it waits, and compares block by block.
func TestAfterAnyFaultTheIndexEqualsTheEnginesCache(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv(envSeed); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%s=%d", envSeed, seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	redis := rig.Standalone(t)
	proxy := rig.NewProxy(t, redis.Addr())
	x := newTier(t, redis.URL()+"?dial_timeout=500ms")
	viaProxy := newTier(t, "redis://"+proxy.Addr()+"/0")
	s := newSimulator(t, rng, publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Buffer: 32, HighWater: 64})
	c := sidecar.Config{
		Scope: x.scope, Replica: "r", Scheme: scheme, Endpoints: []string{s.opts.Endpoint}, Replays: []string{s.opts.Replay},
		Follow: follow.Options{Heartbeat: 300 * time.Millisecond, Probe: 300 * time.Millisecond, Queue: 8},
		Writer: writer.Options{Lease: 1500 * time.Millisecond, Timeout: 500 * time.Millisecond, BatchSize: 7},
		Logger: quiet, Keep: true,
	}
	_, stop := run(t, viaProxy, c)
	traffic := func(n int, send func([]byte) uint64) {
		for range n {
			if events := s.request(); len(events) > 0 {
				send(s.payload(events))
			}
			if rng.IntN(4) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	publish := func(p []byte) uint64 { return s.pub.Publish(p) }
	dump := filepath.Join(redis.Dir(), "dump.rdb")
	// A fault returns whether blocks may be missing for want of proof afterwards.
	faults := map[string]func() bool{
		"a gap within the buffer":       func() bool { traffic(5, func(p []byte) uint64 { return s.pub.Swallow(p) }); return false },
		"a gap beyond the buffer":       func() bool { traffic(200, func(p []byte) uint64 { return s.pub.Swallow(p) }); return true },
		"a burst for a slow subscriber": func() bool { traffic(300, publish); return true },
		"a cut connection":              func() bool { s.pub.Disconnect(); return false },
		"an engine restart":             func() bool { s.restart(); return false },
		"a cleared cache":               func() bool { publish(s.payload(s.reset())); return false },
		"Redis killed, empty":           func() bool { redis.Kill(); _ = os.Remove(dump); traffic(10, publish); redis.Restart(); return false },
		"Redis restored from an old dump": func() bool {
			client := redis.Client()
			require.NoError(t, client.Save(t.Context()).Err())
			traffic(20, publish)
			time.Sleep(100 * time.Millisecond)
			redis.Kill()
			traffic(10, publish)
			redis.Restart()
			return false
		},
		"Redis paused": func() bool {
			redis.Pause()
			traffic(20, publish)
			time.Sleep(700 * time.Millisecond)
			redis.Resume()
			return false
		},
		"a network cut to Redis": func() bool {
			proxy.Down()
			traffic(25, publish)
			time.Sleep(300 * time.Millisecond)
			proxy.Up()
			return false
		},
		"the sidecar replaced": func() bool {
			stop()
			traffic(5, publish)
			_, stop = run(t, viaProxy, c)
			return true // what the replay buffer lost the new one cannot know
		},
		"a malformed batch": func() bool { publish([]byte{0x92, 0x01, 0x91, 0x91, 0x07}); return true },
	}
	names := make([]string, 0, len(faults))
	for name := range faults {
		names = append(names, name)
	}
	slices.Sort(names)
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		// A clean start, so that what is missing is this fault's doing.
		publish(s.payload(s.reset()))
		traffic(20, publish)
		s.settles(x, 0, "before "+name)
		may := 0
		if faults[name]() {
			may = len(s.all)
		}
		traffic(10, publish)
		s.settles(x, may, "after "+name)
		t.Logf("%s: as the engine's cache", name)
	}
	publish(s.payload(s.reset()))
	traffic(30, publish)
	s.settles(x, 0, "at the end")
}
