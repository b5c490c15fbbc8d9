package chaincache

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
)

// Whatever is reported, evicted, cleared, filled late or early and dropped for
// room, in whatever order: a complete answer is the right answer of the state at
// which the partition stands, and after a fill of that state it is complete.
func TestAnswersAreThoseOfTheStateThePartitionStandsAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newMachine(t).run(t) })
}

func FuzzAnswersAreThoseOfTheStateThePartitionStandsAt(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { newMachine(t).run(t) }))
}

type machine struct {
	w       *world
	c       *Cache
	p       *Partition
	at      int // the state that p stands at
	hashes  [][]byte
	spaces  []ranking.Space
	chains  [][]int // what was asked for or reported, as indexes of hashes
	flights []flight
	answer  Answer
	full    bool // the cache is large enough for everything
}

type flight struct {
	r *Reading
	w *Walked
}

func newMachine(t *rapid.T) *machine {
	m := &machine{w: newWorld(rapid.SampledFrom([]int{1, 3, 12}).Draw(t, "replicas"))}
	bound := rapid.SampledFrom([]int64{1 << 20, 12 << 10}).Draw(t, "bytes")
	m.full = bound == 1<<20
	m.c = newTestCache(t, bound)
	m.p = m.c.NewPartition(Position{})
	for i := range rapid.IntRange(2, 40).Draw(t, "hashes") {
		var h string
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			h = strings.Repeat("x", i) // any length, the empty hash among them
		case 1:
			h = strings.Repeat(string(rune('a'+i)), 128)
		default:
			h = string([]byte{1, 2, 3, 4, 5, 6, 7, byte(i)})
		}
		m.hashes = append(m.hashes, []byte(h))
	}
	m.spaces = []ranking.Space{{Scheme: "s", Adapter: "space-0"}, {Scheme: "s", Adapter: "space-1"}}
	return m
}

// chain draws a chain: an old one up to somewhere, then anything.
func (m *machine) chain(t *rapid.T) [][]byte {
	var ids []int
	if len(m.chains) > 0 && rapid.IntRange(0, 9).Draw(t, "old") > 0 {
		old := m.chains[rapid.IntRange(0, len(m.chains)-1).Draw(t, "which")]
		ids = append(ids, old[:rapid.IntRange(0, len(old)).Draw(t, "up to")]...)
	}
	more := rapid.SliceOfN(rapid.IntRange(0, len(m.hashes)-1), 0, 20).Draw(t, "more")
	if rapid.IntRange(0, 3).Draw(t, "grow") == 0 || len(ids) == 0 {
		ids = append(ids, more...)
	}
	if len(ids) == 0 {
		ids = append(ids, 0)
	}
	m.chains = append(m.chains, ids)
	chain := make([][]byte, len(ids))
	for i, id := range ids {
		chain[i] = m.hashes[id]
	}
	return chain
}

func (m *machine) number(t *rapid.T) uint32 {
	return uint32(rapid.IntRange(1, len(m.w.states[0].alive)).Draw(t, "number"))
}

func (m *machine) space(t *rapid.T) ranking.Space {
	return m.spaces[min(1, rapid.IntRange(0, 5).Draw(t, "space")/5)]
}

func (m *machine) query(t *rapid.T) *Query {
	q := &Query{
		Space: m.space(t), Hashes: m.chain(t),
		Exact:    rapid.IntRange(0, 5).Draw(t, "exact") == 0,
		CutoffMS: int64(rapid.SampledFrom([]int{0, 0, 3, 7}).Draw(t, "cutoff")),
	}
	if q.Exact {
		q.Hashes = q.Hashes[len(q.Hashes)-1:]
		return q
	}
	for range q.Hashes {
		q.Tokens = append(q.Tokens, int32(rapid.IntRange(0, 100).Draw(t, "tokens")))
	}
	return q
}

func (m *machine) run(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"report":  m.report,
		"evict":   m.evict,
		"clear":   func(t *rapid.T) { m.w.clear(m.number(t), rapid.Bool().Draw(t, "told")) },
		"apply":   m.apply,
		"apply+":  m.apply,
		"walk":    m.walk,
		"land":    m.land,
		"lookup":  m.lookup,
		"lookup+": m.lookup,
		"learn":   m.learn,
		"reopen":  m.reopen,
		"":        func(t *rapid.T) { check(t, m.c, m.p) },
	})
	for len(m.flights) > 0 {
		m.land(t)
	}
	for m.at < m.w.now() {
		m.apply(t)
	}
	m.learn(t)
	m.p.Close()
	require.Zero(t, m.c.bytes.Load())
	require.Zero(t, m.c.blocks.Load())
}

func (m *machine) report(t *rapid.T) {
	ch := &Change{Number: m.number(t), Space: m.space(t).Adapter, SeenMS: int64(rapid.IntRange(1, 10).Draw(t, "seen"))}
	seen := map[string]bool{}
	for i, h := range m.chain(t) {
		if !seen[string(h)] { // the store lets no hash through twice
			seen[string(h)] = true
			ch.Held = append(ch.Held, Entry{Hash: h, Tier: ranking.Tier(1 + i%3), Tokens: int32(i)})
		}
	}
	m.w.change(ch)
}

func (m *machine) evict(t *rapid.T) {
	ch := &Change{Number: m.number(t), Evicted: m.chain(t)}
	ch.Evicted = ch.Evicted[rapid.IntRange(0, len(ch.Evicted)-1).Draw(t, "from"):]
	for _, sp := range m.spaces {
		ch.Spaces = append(ch.Spaces, sp.Adapter)
	}
	m.w.change(ch)
}

// apply brings the partition one state further, as the follower does.
func (m *machine) apply(t *rapid.T) {
	if m.at == m.w.now() {
		return
	}
	require.NoError(t, m.p.Apply(m.w.changes[m.at]))
	m.at++
	require.NoError(t, m.p.Apply(m.w.changes[m.at-1]), "an old change does nothing")
	if m.at+1 < len(m.w.changes) {
		require.ErrorIs(t, m.p.Apply(m.w.changes[m.at+1]), ErrGap)
	}
}

// walk sends a walk off; it reads the newest state.
func (m *machine) walk(t *rapid.T) {
	q := m.query(t)
	m.p.Lookup(q, &m.answer)
	if m.answer.Complete {
		return
	}
	m.flights = append(m.flights, flight{m.p.Read(), m.w.walk(m.w.now(), q.Space, q.Hashes, m.answer.Known)})
}

// land brings one of the walks back, in any order.
func (m *machine) land(t *rapid.T) {
	if len(m.flights) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.flights)-1).Draw(t, "flight")
	f := m.flights[i]
	m.flights = append(m.flights[:i], m.flights[i+1:]...)
	err := f.r.Fill(f.w)
	if f.w.Pos.Compare(positionOf(m.at)) > 0 && !m.p.closed.Load() && f.r.p == m.p {
		require.ErrorIs(t, err, ErrAhead)
	} else if err != nil {
		require.ErrorIs(t, err, ErrRefused)
	}
	f.r.End()
	f.r.End()
}

func (m *machine) lookup(t *rapid.T) {
	q := m.query(t)
	m.p.Lookup(q, &m.answer)
	m.judge(t, q)
}

func (m *machine) judge(t *rapid.T, q *Query) {
	require.LessOrEqual(t, m.answer.Known, len(q.Hashes))
	if !m.answer.Complete {
		return
	}
	want := m.w.states[m.at].answer(q)
	if diff := cmp.Diff(want, m.answer.byNumber()); diff != "" {
		t.Fatalf("the answer at state %d (-want +got):\n%s", m.at, diff)
	}
}

// learn fills what a lookup lacks from the state that the partition stands at.
func (m *machine) learn(t *rapid.T) {
	q := m.query(t)
	m.p.Lookup(q, &m.answer)
	if !m.answer.Complete {
		r := m.p.Read()
		err := r.Fill(m.w.walk(m.at, q.Space, q.Hashes, m.answer.Known))
		r.End()
		q.Again = true
		m.p.Lookup(q, &m.answer)
		if m.full {
			require.NoError(t, err)
			require.True(t, m.answer.Complete, "known up to %d of %d", m.answer.Known, len(q.Hashes))
		}
	}
	m.judge(t, q)
}

// reopen is what the follower does when it missed something.
func (m *machine) reopen(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
		return
	}
	m.p.Close()
	require.ErrorIs(t, m.p.Apply(&Change{Pos: Position{MS: 1 << 40}}), ErrGap)
	m.at = rapid.IntRange(m.at, m.w.now()).Draw(t, "at")
	m.p = m.c.NewPartition(positionOf(m.at))
}
