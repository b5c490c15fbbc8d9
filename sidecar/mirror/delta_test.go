package mirror

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/events"
)

// index takes deltas as the real one does.
type index struct{ has map[string]Change }

func newIndex() *index { return &index{has: map[string]Change{}} }

func (ix *index) take(d *Delta) (log []string) {
	if d.Retire {
		clear(ix.has)
		return []string{"retire"}
	}
	for _, c := range d.Changes {
		key := fmt.Sprint(c.FP, c.Adapter)
		if c.Tier == ranking.TierNone {
			delete(ix.has, key)
			log = append(log, fmt.Sprintf("-%016x", c.FP))
		} else {
			ix.has[key] = c
			log = append(log, text(c.FP, c.Tokens, c.Tier, c.Adapter))
		}
	}
	return log
}

func (ix *index) drain(t require.TestingT, m *Mirror, now time.Time) (log []string) {
	var d Delta
	for m.Collect(&d, 3) {
		require.LessOrEqual(t, len(d.Changes), 3)
		log = append(log, ix.take(&d)...)
		m.Settle(&d, true, now)
	}
	require.Zero(t, m.State().Pending)
	return log
}

func (ix *index) holds() map[string]bool {
	out := map[string]bool{}
	for _, c := range ix.has {
		out[text(c.FP, c.Tokens, c.Tier, c.Adapter)] = true
	}
	return out
}

func TestABlockThatCameAndWentCostsNothing(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1), stored(0, 2), removed("", 1))
	require.Equal(t, []string{t1(2)}, ix.drain(t, m, start))
	apply(m, removed("", 2), stored(0, 2))
	require.Empty(t, ix.drain(t, m, start))
}

func TestAChangeDuringAWriteIsWrittenAfterIt(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1))
	var d Delta
	require.True(t, m.Collect(&d, 10))
	apply(m, removed("", 1))
	ix.take(&d)
	m.Settle(&d, true, start)
	require.Equal(t, []string{fmt.Sprintf("-%016x", fpOf(1))}, ix.drain(t, m, start))
}

func TestAWriteWithoutAReplyIsTakenForHalfDone(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1))
	var d Delta
	require.True(t, m.Collect(&d, 10))
	ix.take(&d) // it arrived, and the reply did not
	m.Settle(&d, false, start)
	apply(m, removed("", 1))
	ix.drain(t, m, start)
	require.Empty(t, ix.holds())
}

func TestAReplayShowsItsEndOnly(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1), stored(0, 2))
	ix.drain(t, m, start)
	apply(m, removed("", 1))
	ix.drain(t, m, start)
	m.Pause()
	apply(m, stored(0, 1))
	require.Empty(t, ix.drainPaused(m))
	apply(m, removed("", 1))
	m.Resume()
	require.Empty(t, ix.drain(t, m, start))
	m.Pause()
	m.Reset()
	require.Equal(t, []string{"retire"}, ix.drainPaused(m), "a restart does not wait")
}

func (ix *index) drainPaused(m *Mirror) (log []string) {
	var d Delta
	for m.Collect(&d, 10) {
		log = append(log, ix.take(&d)...)
		m.Settle(&d, true, start)
	}
	return log
}

func TestWhatTheIndexLostIsWrittenAgain(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1, 2), stored(0, 3))
	ix.drain(t, m, start)
	apply(m, removed("", 3))
	clear(ix.has)
	m.Forget()
	require.Len(t, ix.drain(t, m, start), 2, "and the removal needs no write")
	require.Empty(t, cmp.Diff(holds(m), ix.holds()))
}

func TestAWriteAfterTheLossIsNotForgotten(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1), stored(0, 2), stored(0, 3))
	var d Delta
	require.True(t, m.Collect(&d, 1))
	ix.take(&d)
	m.Settle(&d, false, start) // without a reply
	require.True(t, m.Collect(&d, 1))
	ix.take(&d)
	m.Forget() // the reply tells that everything before it was lost
	m.Settle(&d, true, start)
	apply(m, removed("", 1, 2, 3))
	ix.drain(t, m, start)
	require.Empty(t, ix.holds())
}

func TestRefreshGoesRoundAndTakesWhatIsOld(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	for n := uint64(1); n <= 100; n++ {
		apply(m, stored(0, n))
	}
	ix.drain(t, m, start)
	require.Zero(t, m.Refresh(1, time.Minute, start.Add(30*time.Second)))
	total, rounds := 0, 0
	for at := start.Add(2 * time.Minute); rounds < 10; rounds++ {
		n := m.Refresh(0.1, time.Minute, at)
		require.LessOrEqual(t, n, 12, "spread over time")
		require.Len(t, ix.drain(t, m, at), n)
		total += n
	}
	require.Equal(t, 100, total)
	apply(m, removed("", 1))
	require.NotZero(t, m.Refresh(1, 0, start.Add(time.Hour)))
	ix.drain(t, m, start)
	require.Len(t, ix.holds(), 99)
}

// TestTheIndexEndsEqualToTheEnginesCache: any interleaving of events, failed and lost writes,
// and an index that loses everything. The model of an engine is a set of (block, medium) pairs.
func TestTheIndexEndsEqualToTheEnginesCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, ix := New(Options{}, start), newIndex()
		engine := map[uint64]map[string]bool{} // chains are 1, 1-2, 1-2-3 …, 11, 11-12 …
		chainOf := func(n uint64) (chain []uint64) {
			for i := n/10*10 + 1; i <= n; i++ {
				chain = append(chain, i)
			}
			return chain
		}
		var d Delta
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			medium := rapid.SampledFrom([]string{"", "CPU"}).Draw(t, "medium")
			n := uint64(rapid.IntRange(0, 2).Draw(t, "chain")*10 + rapid.IntRange(1, 5).Draw(t, "block"))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2: // a request: all of its chain is in the cache afterwards
				e := stored(0, chainOf(n)...)
				e.Medium = medium
				apply(m, e)
				for _, b := range chainOf(n) {
					if engine[b] == nil {
						engine[b] = map[string]bool{}
					}
					engine[b][medium] = true
				}
			case 3, 4:
				apply(m, removed(medium, n))
				delete(engine[n], medium)
			case 5:
				apply(m, events.Event{Kind: events.Cleared})
				clear(engine)
			case 6: // a write, whatever becomes of it
				if m.Collect(&d, rapid.IntRange(1, 4).Draw(t, "limit")) {
					if rapid.Bool().Draw(t, "arrives") {
						ix.take(&d)
						m.Settle(&d, rapid.Bool().Draw(t, "replies"), start)
					} else {
						m.Settle(&d, false, start)
					}
				}
			case 7:
				clear(ix.has)
				m.Forget()
			case 8:
				m.Refresh(0.3, 0, start)
			case 9:
				m.Lost() // and then the engine forgets all, so that the model knows what is right
				apply(m, events.Event{Kind: events.Cleared})
				clear(engine)
			}
		}
		ix.drain(t, m, start)
		want := map[string]bool{}
		blocks := 0
		for n, media := range engine {
			switch {
			case media[""]:
				want[t1(chainOf(n)...)] = true
			case media["CPU"]:
				want[t2(chainOf(n)...)] = true
			}
			blocks += min(len(media), 1)
		}
		if diff := cmp.Diff(want, ix.holds()); diff != "" {
			t.Fatal(diff)
		}
		if s := m.State(); s.Resident[1]+s.Resident[2] != len(want) || s.Blocks < blocks {
			t.Fatalf("state %+v", s)
		}
		for n := range engine {
			apply(m, removed("", n), removed("CPU", n))
		}
		ix.drain(t, m, start)
		if s := m.State(); s.Blocks != 0 || m.ledger.holds.len() != 0 || m.ledger.byFP.used != 0 {
			t.Fatalf("leak: %d blocks, %d holds", s.Blocks, m.ledger.holds.len())
		}
	})
}

func TestTheTableFindsWhatAMapFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a arena[uint64]
		hash := func(v uint64) uint64 { return v % 7 * 61 } // many collisions
		tab := table{hash: func(i uint32) uint64 { return hash(*a.at(i)) }}
		model := map[uint64]uint32{}
		for _, v := range rapid.SliceOfN(rapid.Uint64Range(1, 200), 0, 600).Draw(t, "toggles") {
			i := tab.find(hash(v), func(i uint32) bool { return *a.at(i) == v })
			if i != model[v] {
				t.Fatalf("%d: found %d, want %d", v, i, model[v])
			}
			if i != 0 {
				tab.remove(hash(v), i)
				a.drop(i)
				delete(model, v)
			} else {
				i = a.add()
				*a.at(i) = v
				tab.insert(hash(v), i)
				model[v] = i
			}
		}
		if tab.used != len(model) || a.len() != len(model) {
			t.Fatal("sizes differ")
		}
	})
}

// TestMemoryPerBlockIsAsStated measures what docs/sidecar.md says of a full mirror.
func TestMemoryPerBlockIsAsStated(t *testing.T) {
	const blocks, chain = 1 << 18, 256
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	m := New(Options{}, start)
	var d Delta
	hashes, tokens := make([]events.Hash, chain), make([]uint32, chain*16)
	for n := uint64(0); n < blocks; n += chain {
		for i := range hashes {
			hashes[i] = h(n + uint64(i) + 1)
		}
		for i := range tokens {
			tokens[i] = uint32(n) + uint32(i)
		}
		apply(m, events.Event{Kind: events.Stored, Hashes: hashes, Tokens: tokens, BlockSize: 16, Group: events.NoGroup})
		for m.Collect(&d, 1000) {
			m.Settle(&d, true, start)
		}
	}
	d = Delta{}
	per := float64(heap()-before) / blocks
	require.Equal(t, blocks, m.State().Resident[1])
	t.Logf("%.1f bytes a block", per)
	require.Less(t, per, 100.0)
	runtime.KeepAlive(m)
}

func TestReasonsHaveNames(t *testing.T) {
	names := make([]string, 0, reasons)
	for _, r := range Reasons() {
		names = append(names, r.String())
	}
	slices.Sort(names)
	require.NotContains(t, names, "")
	require.Len(t, slices.Compact(names), reasons-1)
}

func BenchmarkApply(b *testing.B) {
	m := New(Options{}, start)
	e := stored(0)
	e.Hashes, e.Tokens, e.BlockSize = make([]events.Hash, 64), make([]uint32, 1024), 16
	r := events.Event{Kind: events.Removed, Hashes: e.Hashes, Group: events.NoGroup}
	batch := &events.Batch{Events: []events.Event{e, r}}
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		for i := range e.Hashes {
			n++
			e.Hashes[i] = h(n)
			e.Tokens[16*i] = uint32(n)
		}
		m.Apply(batch)
		var d Delta
		for m.Collect(&d, 1000) {
			m.Settle(&d, true, start)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/block")
}
