package sidecar_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/publisher"
)

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
	// steps are the batches so far, by sequence number.
	steps  []step
	losses *lossLog
	// padding makes a batch larger by so many bytes, in a field that nobody knows.
	padding int
}

func newSimulator(t testing.TB, rng *rand.Rand, o publisher.Options) *simulator {
	t.Helper()
	s := &simulator{t: t, rng: rng, root: &node{kids: map[int]*node{}}, limit: 60, opts: o, salt: rng.Uint64(), losses: &lossLog{}}
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
	s.cached, s.salt, s.steps = 0, s.rng.Uint64(), nil
	s.losses.forget()
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

// request runs a prompt: what of it is missing is stored, and something else is evicted for it. Events, if any,
// are the next batch: they must be published or swallowed before another request.
func (s *simulator) request() []any {
	s.clock++
	path := []*node{}
	for at := s.root; len(path) < 1+s.rng.IntN(8); {
		at = s.child(at, s.rng.IntN(3))
		path = append(path, at)
	}
	var events []any
	now := step{}
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
		now.stored = path[first:]
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
		now.removed = append(now.removed, oldest)
		s.drop(oldest)
	}
	if len(gone) > 0 {
		events = append(events, []any{"BlockRemoved", gone})
	}
	if len(events) > 0 {
		s.steps = append(s.steps, now)
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
	s.steps = append(s.steps, step{cleared: true})
	return []any{[]any{"AllBlocksCleared"}}
}

func (s *simulator) payload(events []any) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	batch := []any{float64(time.Now().UnixMicro()) / 1e6, events}
	if s.padding > 0 {
		batch = append(batch, nil, make([]byte, s.padding))
	}
	require.NoError(s.t, enc.Encode(batch))
	return buf.Bytes()
}
