package chaincache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// Lookups, fills and the log at once: each complete answer is right for one of the
// states that the partition stood at while the lookup ran.
func TestConcurrentAnswersAreNeverHalfOfAChange(t *testing.T) {
	for _, bytes := range []int64{1 << 20, 24 << 10} {
		t.Run(fmt.Sprintf("bytes=%d", bytes), func(t *testing.T) { concurrently(t, bytes) })
	}
}

func concurrently(t *testing.T, bytes int64) {
	const numbers, changes, chainLen = 6, 400, 24
	r := rand.New(rand.NewPCG(7, uint64(bytes)))
	sp := ranking.Space{Scheme: "s", Adapter: "space-0"}
	var chains [][][]byte
	for i := range 12 { // four trunks, three forks each
		var chain [][]byte
		for j := range chainLen {
			id := i
			if j < 8 {
				id = 100 + i/3
			}
			chain = append(chain, []byte{byte(id), byte(j), 0, 0, 0, 0, 0, 1})
		}
		chains = append(chains, chain)
	}
	w := newWorld(numbers)
	for range changes {
		chain, number := chains[r.IntN(len(chains))], uint32(1+r.IntN(numbers))
		switch r.IntN(8) {
		case 0, 1:
			from := r.IntN(len(chain))
			w.change(&Change{Number: number, Evicted: chain[from:], Spaces: []string{sp.Adapter}})
		case 2:
			w.clear(number, r.IntN(2) == 0)
		default:
			ch := &Change{Number: number, Space: sp.Adapter, SeenMS: int64(1 + r.IntN(9))}
			for j, h := range chain[:1+r.IntN(len(chain))] {
				ch.Held = append(ch.Held, Entry{Hash: h, Tier: 1, Tokens: int32(j)})
			}
			w.change(ch)
		}
	}
	index := map[Position]int{}
	for i := range w.states {
		index[positionOf(i)] = i
	}

	c := newTestCache(t, bytes)
	p := c.NewPartition(Position{})
	var over atomic.Bool
	var complete atomic.Int64
	var wg sync.WaitGroup
	query := func(r *rand.Rand) *Query {
		q := &Query{Space: sp, Hashes: chains[r.IntN(len(chains))], CutoffMS: int64(r.IntN(3))}
		if q.Exact = r.IntN(8) == 0; q.Exact {
			q.Hashes = q.Hashes[r.IntN(chainLen):]
			return q
		}
		q.Hashes = q.Hashes[:1+r.IntN(chainLen)]
		for i := range q.Hashes {
			q.Tokens = append(q.Tokens, int32(i+1))
		}
		return q
	}
	for reader := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(reader), 1))
			var a Answer
			for !over.Load() {
				q := query(r)
				from := index[p.Position()]
				p.Lookup(q, &a)
				to := index[p.Position()]
				if !a.Complete {
					rd := p.Read()
					// What Redis says meanwhile: a state at or after the partition's.
					at := min(w.now(), index[p.Position()]+r.IntN(3))
					err := rd.Fill(w.walk(at, q.Space, q.Hashes, a.Known))
					if errors.Is(err, ErrAhead) {
						select {
						case <-p.Reached(positionOf(at)):
							_ = rd.Fill(w.walk(at, q.Space, q.Hashes, a.Known))
						default:
						}
					}
					rd.End()
					continue
				}
				complete.Add(1)
				got, ok := a.byNumber(), false
				for i := from; i <= to && !ok; i++ {
					ok = cmp.Equal(w.states[i].answer(q), got)
				}
				if !ok {
					t.Errorf("between states %d and %d no state gives %v", from, to, got)
					over.Store(true)
				}
			}
		})
	}
	for i, ch := range w.changes {
		if i > 0 && i%10 == 0 {
			// Leave the lookups time to fill and to find, whatever the machine is busy with.
			for want := complete.Load() + 5; complete.Load() < want && !over.Load(); {
				runtime.Gosched()
			}
		}
		require.NoError(t, p.Apply(ch))
	}
	over.Store(true)
	wg.Wait()
	check(t, c, p)
	require.Positive(t, c.hits.Load())
	p.Close()
	require.Zero(t, c.bytes.Load())
}

// A report of many blocks is seen whole or not at all, whether it brings a new
// replica, dates its holds anew or takes them away.
func TestAChangeOfManyBlocksIsSeenWholeOrNotAtAll(t *testing.T) {
	s := shape{blocks: 1500, replicas: 3, holders: 1, width: 8}
	c := newTestCache(t, 1<<30)
	p := c.NewPartition(Position{})
	hashes, tokens := chainOf(1, s.blocks, s.width)
	r := p.Read()
	require.NoError(t, r.Fill(s.walked(hashes)))
	r.End()

	// Replica 2 reports, reports again with the next time and the other tier, is evicted.
	changeOf := func(i int) *Change {
		ch := &Change{Number: 2, Prev: Position{MS: uint64(i)}, Pos: Position{MS: uint64(i) + 1}}
		if i%3 == 2 {
			ch.Evicted, ch.Spaces = hashes, []string{"k"}
			return ch
		}
		ch.Space, ch.SeenMS = "k", int64(i)
		for _, h := range hashes {
			ch.Held = append(ch.Held, Entry{Hash: h, Tier: ranking.Tier(1 + i%2), Tokens: 16})
		}
		return ch
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	looks := make([]atomic.Int64, 2)
	for reader := range looks {
		wg.Go(func() {
			var a Answer
			for !over.Load() {
				p.Lookup(&Query{Space: benchSpace, Hashes: hashes, Tokens: tokens, CutoffMS: -1}, &a)
				looks[reader].Add(1)
				for _, run := range a.Runs {
					if run.Replica != 1 {
						continue
					}
					i := int(run.SeenMS)
					if run.Blocks != s.blocks || run.Tier != ranking.Tier(1+i%2) || i%3 == 2 {
						t.Errorf("half of a change: %+v", run)
						over.Store(true)
					}
				}
				if !a.Complete || len(a.Runs) == 0 {
					t.Errorf("complete %v, %d runs", a.Complete, len(a.Runs))
					over.Store(true)
				}
			}
		})
	}
	for i := range 150 {
		for want := looks[0].Load() + 1; looks[0].Load() < want && !over.Load(); {
			runtime.Gosched()
		}
		require.NoError(t, p.Apply(changeOf(i)))
	}
	over.Store(true)
	wg.Wait()
}
