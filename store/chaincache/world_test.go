package chaincache

import (
	"maps"
	"slices"
	"strconv"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// world is the index that the tests' partitions follow: every state that it was
// ever in, by the number of changes before it, and the changes between.
type world struct {
	states  []state
	changes []*Change
}

type state struct {
	blocks map[blockKey]map[uint32]ranking.Hold
	alive  map[uint32]bool
}

type blockKey struct{ space, hash string }

// testHead is a head whose schemes all have one serving set.
type testHead struct{ roster *Roster }

func (h testHead) Roster(string, int64) *Roster { return h.roster }

func newWorld(numbers int) *world {
	s := state{blocks: map[blockKey]map[uint32]ranking.Hold{}, alive: map[uint32]bool{}}
	for n := 1; n <= numbers; n++ {
		s.alive[uint32(n)] = true
	}
	return &world{states: []state{s}}
}

func positionOf(i int) Position {
	if i == 0 {
		return Position{}
	}
	return Position{MS: 1000 + uint64(i/3), Seq: uint64(i % 3)}
}

// now is the index of the newest state.
func (w *world) now() int { return len(w.states) - 1 }

func (s state) clone() state {
	blocks := make(map[blockKey]map[uint32]ranking.Hold, len(s.blocks))
	for k, v := range s.blocks {
		blocks[k] = maps.Clone(v)
	}
	return state{blocks: blocks, alive: maps.Clone(s.alive)}
}

// change makes a new state and logs how it came about.
func (w *world) change(ch *Change) {
	s := w.states[w.now()].clone()
	for _, e := range ch.Held {
		k := blockKey{ch.Space, string(e.Hash)}
		if s.blocks[k] == nil {
			s.blocks[k] = map[uint32]ranking.Hold{}
		}
		s.blocks[k][ch.Number] = ranking.Hold{Replica: ch.Number, SeenMS: ch.SeenMS, Tier: e.Tier, Tokens: e.Tokens}
	}
	for _, space := range ch.Spaces {
		for _, h := range ch.Evicted {
			delete(s.blocks[blockKey{space, string(h)}], ch.Number)
		}
	}
	ch.Prev, ch.Pos = positionOf(w.now()), positionOf(w.now()+1)
	w.states = append(w.states, s)
	w.changes = append(w.changes, ch)
}

// clear retires a number; the records stay, as they do in Redis.
func (w *world) clear(number uint32, told bool) {
	w.change(&Change{Number: number, HeadChanged: true})
	s := w.states[w.now()]
	s.alive[number] = !s.alive[number]
	if told {
		w.changes[len(w.changes)-1].Head = s.head()
	}
}

func (s state) head() Head {
	var replicas []ranking.Replica
	var numbers []uint32
	for _, n := range slices.Sorted(maps.Keys(s.alive)) {
		if s.alive[n] {
			replicas = append(replicas, ranking.Replica{ID: "engine-" + strconv.Itoa(int(n))})
			numbers = append(numbers, n)
		}
	}
	return testHead{NewRoster(replicas, numbers)}
}

func (s state) holds(space string, hash []byte) []ranking.Hold {
	var list []ranking.Hold
	for _, h := range s.blocks[blockKey{space, string(hash)}] {
		list = append(list, h)
	}
	return list
}

// walk reads what a walk of Redis would: up to the first block that nobody holds.
func (w *world) walk(at int, sp ranking.Space, hashes [][]byte, from int) *Walked {
	s := w.states[at]
	r := &Walked{
		Space: sp, Key: sp.Adapter, Hashes: hashes, From: from, Pos: positionOf(at), Head: s.head(),
	}
	for _, h := range hashes[from:] {
		holds := s.holds(sp.Adapter, h)
		r.Holds = append(r.Holds, holds)
		if len(holds) == 0 {
			break
		}
	}
	return r
}

// answer is the right answer in one state, by number.
func (s state) answer(q *Query) map[uint32]ranking.Run {
	var runs []ranking.NumberRun
	if q.Exact {
		runs = ranking.ExactRuns(s.living(q.Adapter, q.Hashes[0]), q.CutoffMS, nil)
	} else {
		var walk ranking.Walk
		walk.Reset(q.CutoffMS)
		for i, h := range q.Hashes {
			if walk.Step(s.living(q.Adapter, h), q.Tokens[i]) == 0 {
				break
			}
		}
		runs = walk.Runs()
	}
	byNumber := map[uint32]ranking.Run{}
	for _, r := range runs {
		byNumber[r.Replica] = ranking.Run{Tokens: r.Tokens, SeenMS: r.SeenMS, Tier: r.Tier, Blocks: r.Blocks}
	}
	return byNumber
}

func (s state) living(space string, hash []byte) []ranking.Hold {
	return slices.DeleteFunc(s.holds(space, hash), func(h ranking.Hold) bool { return !s.alive[h.Replica] })
}

// byNumber is the answer of a partition in the form of state.answer.
func (a *Answer) byNumber() map[uint32]ranking.Run {
	runs := map[uint32]ranking.Run{}
	for _, r := range a.Runs {
		n, _ := strconv.Atoi(a.Roster.Replicas[r.Replica].ID[len("engine-"):])
		r.Replica = 0
		runs[uint32(n)] = r
	}
	return runs
}

// check recounts everything that a cache keeps count of. No writer may be at work.
func check(t require.TestingT, c *Cache, partitions ...*Partition) {
	var bytes, blocks int64
	queued := map[*segment]bool{}
	for _, q := range []*queue{&c.recent, &c.kept} {
		var weight int64
		for s := q.oldest; s != nil; s = s.newer {
			require.Same(t, q, s.queue)
			require.False(t, s.dead.Load())
			queued[s] = true
			weight += s.weight()
		}
		require.Equal(t, weight, q.weight)
	}
	segments := 0
	for _, p := range partitions {
		bytes += partitionBytes + p.blocks.bytes() + p.edges.bytes() + p.spaces.bytes()
		for _, sp := range p.byKey {
			bytes += spaceBytes + sp.nameBytes()
			seen := map[*block]int{}
			var visit func(at *stem)
			visit = func(at *stem) {
				for s := at.first; s != nil; s = s.next {
					segments++
					require.True(t, queued[s], "a segment of the tree is in no queue")
					require.Same(t, at, s.up)
					bytes += s.size + s.digest.Load().bytes()
					once := map[*block]bool{}
					for _, b := range s.blocks {
						if !once[b] {
							once[b] = true
							seen[b]++
						}
						require.Same(t, b, p.findBlock(sp, []byte(b.key)))
					}
					chain := [][]byte{[]byte(s.blocks[0].key)}
					require.Same(t, s, p.findEdge(at, chain))
					visit(s.end)
				}
			}
			visit(sp.root)
			visit(sp.anywhere)
			require.Len(t, seen, sp.blocks, "blocks that stand in no segment")
			for b, n := range seen {
				require.Equal(t, n, b.places())
				require.LessOrEqual(t, n, maxPlaces+2)
				bytes += b.bytes()
				blocks++
			}
		}
	}
	require.Len(t, queued, segments)
	require.Equal(t, blocks, c.blocks.Load())
	require.Equal(t, bytes, c.bytes.Load())
}

// newTestCache may be smaller than New allows, so that tests see evictions.
func newTestCache(t require.TestingT, bound int64) *Cache {
	c, err := New(MinBytes)
	require.NoError(t, err)
	c.max = bound
	return c
}
