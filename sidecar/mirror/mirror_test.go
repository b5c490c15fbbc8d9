package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/events"
)

var start = time.Unix(1_700_000_000, 0)

const size = 4

func h(n uint64) events.Hash { return events.Hash{Lo: n} }

func hs(ns ...uint64) []events.Hash {
	out := make([]events.Hash, len(ns))
	for i, n := range ns {
		out[i] = h(n)
	}
	return out
}

// tokensOf makes the tokens of blocks, different for different numbers.
func tokensOf(ns ...uint64) []uint32 {
	var out []uint32
	for _, n := range ns {
		for i := range size {
			out = append(out, uint32(n)*100+uint32(i))
		}
	}
	return out
}

// fpOf is the fingerprint of the last block of a chain.
func fpOf(chain ...uint64) uint64 {
	var fp uint64
	for i, n := range chain {
		c := ranking.ContentHash(tokensOf(n))
		if i == 0 {
			fp = c
		} else {
			fp = ranking.PrefixHash(fp, c)
		}
	}
	return fp
}

func stored(parent uint64, ns ...uint64) events.Event {
	return events.Event{Kind: events.Stored, Hashes: hs(ns...), HasParent: parent != 0, Parent: h(parent),
		Tokens: tokensOf(ns...), BlockSize: size, Group: events.NoGroup}
}

func removed(medium string, ns ...uint64) events.Event {
	return events.Event{Kind: events.Removed, Hashes: hs(ns...), Medium: medium, Group: events.NoGroup}
}

func with(e events.Event, f func(*events.Event)) events.Event { f(&e); return e }

func apply(m *Mirror, es ...events.Event) int {
	return m.Apply(&events.Batch{Rank: events.NoRank, Events: es})
}

// holds is what the index should have, as text: "fingerprint tokens tier adapter".
func holds(m *Mirror) map[string]bool {
	out := map[string]bool{}
	for _, c := range m.Resident() {
		out[text(c.FP, c.Tokens, c.Tier, c.Adapter)] = true
	}
	return out
}

func text(fp uint64, tokens int32, tier ranking.Tier, adapter string) string {
	return fmt.Sprintf("%016x %d T%d %s", fp, tokens, tier, adapter)
}

func expect(t *testing.T, m *Mirror, want ...string) {
	t.Helper()
	all := map[string]bool{}
	for _, w := range want {
		all[w] = true
	}
	require.Empty(t, cmp.Diff(all, holds(m)))
}

func t1(chain ...uint64) string { return text(fpOf(chain...), int32(size*len(chain)), 1, "") }
func t2(chain ...uint64) string { return text(fpOf(chain...), int32(size*len(chain)), 2, "") }

func TestASuffixContinuesItsParentAcrossEvents(t *testing.T) {
	m := New(Options{}, start)
	require.Zero(t, apply(m, stored(0, 1, 2)))
	require.Zero(t, apply(m, stored(2, 3), stored(1, 4)))
	expect(t, m, t1(1), t1(1, 2), t1(1, 2, 3), t1(1, 4))
	require.Equal(t, ranking.AppendFingerprints(nil, nil, tokensOf(1, 2, 3), size)[16:],
		beBytes(fpOf(1, 2, 3)), "as a lookup computes it")
}

func beBytes(v uint64) []byte {
	out := make([]byte, 8)
	for i := range out {
		out[i] = byte(v >> (56 - 8*i))
	}
	return out
}

func TestMediaAreCountedApart(t *testing.T) {
	m := New(Options{}, start)
	cpu := func(e events.Event) events.Event { e.Medium = "CPU"; return e }
	apply(m, stored(0, 1), stored(0, 1), cpu(stored(0, 1)))
	expect(t, m, t1(1))
	apply(m, removed("GPU", 1))
	expect(t, m, t2(1))
	apply(m, removed("", 1))
	expect(t, m, t2(1))
	apply(m, removed("cpu", 1))
	expect(t, m)
	require.Zero(t, m.State().Blocks)
	apply(m, removed("", 99))
	require.EqualValues(t, 2, m.State().Counts.RemovedUnknown)
}

func TestAnOffloadTierMayNameBlocksByHashAlone(t *testing.T) {
	m := New(Options{Media: map[string]ranking.Tier{"external": ranking.TierT3}}, start)
	bare := func(medium string, ns ...uint64) events.Event {
		return events.Event{Kind: events.Stored, Hashes: hs(ns...), BlockSize: size, Medium: medium, Group: events.NoGroup}
	}
	apply(m, stored(0, 1, 2), bare("CPU", 1, 2, 7), bare("EXTERNAL", 2), removed("GPU", 1, 2), removed("CPU", 2))
	expect(t, m, t2(1), text(fpOf(1, 2), 2*size, 3, ""))
	require.EqualValues(t, 1, m.State().Counts.KeptOut[NoTokens], "7 is not taken for a root")
	apply(m, with(bare("CPU", 1), func(e *events.Event) { e.BlockSize = 4 * size }))
	require.EqualValues(t, 1, m.State().Counts.KeptOut[BlockSize])
}

func TestABlockWithAnUnknownParentAndItsDescendantsStayOut(t *testing.T) {
	m := New(Options{}, start)
	require.Equal(t, 2, apply(m, stored(9, 10, 11)))
	require.Equal(t, 1, apply(m, stored(11, 12)))
	expect(t, m)
	require.Equal(t, 3, m.State().KeptOut[UnknownParent])
	// A replay brings the beginning, and then the rest again.
	require.Zero(t, apply(m, stored(0, 9), stored(9, 10, 11), stored(11, 12)))
	expect(t, m, t1(9), t1(9, 10), t1(9, 10, 11), t1(9, 10, 11, 12))
	require.Zero(t, m.State().KeptOut[UnknownParent])
}

func TestAnEvictedParentStillPlacesItsChildren(t *testing.T) {
	m := New(Options{}, start)
	apply(m, stored(0, 1, 2), removed("", 1))
	expect(t, m, t1(1, 2))
	require.Zero(t, apply(m, stored(1, 3)))
	expect(t, m, t1(1, 2), t1(1, 3))
	apply(m, removed("", 2, 3))
	expect(t, m)
	require.Zero(t, m.State().Blocks, "nothing is kept for nobody")
}

func TestWhatTokensDoNotTellStaysOutWithAllDescendants(t *testing.T) {
	extra := func(keys ...events.ExtraKey) func(*events.Event) {
		return func(e *events.Event) { e.Extra, e.ExtraBlocks = keys, len(e.Hashes) }
	}
	for name, tc := range map[string]struct {
		e   events.Event
		why Reason
		in  []string
	}{
		"an image in the second block": {with(stored(0, 1, 2, 3), extra(events.ExtraKey{Block: 1, Name: "img"})), ExtraKeys, []string{t1(1)}},
		"a salt that is no text":       {with(stored(0, 1), extra(events.ExtraKey{})), ExtraKeys, nil},
		"an adapter without a name":    {with(stored(0, 1), func(e *events.Event) { e.HasLoraID, e.LoraID = true, 8 }), UnmappedAdapter, nil},
		"tokens that do not fit":       {with(stored(0, 1), func(e *events.Event) { e.Tokens = e.Tokens[1:] }), BadEvent, nil},
		"no block size":                {with(stored(0, 1), func(e *events.Event) { e.BlockSize = 0 }), BadEvent, nil},
		"keys that do not fit":         {with(stored(0, 1), func(e *events.Event) { e.ExtraBlocks = 2 }), BadEvent, nil},
	} {
		var told []Reason
		m := New(Options{KeptOut: func(r Reason, _ int, detail string) {
			require.NotEmpty(t, detail)
			told = append(told, r)
		}}, start)
		last := tc.e.Hashes[len(tc.e.Hashes)-1].Lo
		require.Zero(t, apply(m, tc.e, stored(last, 50), stored(50, 51)), name)
		expect(t, m, tc.in...)
		require.Contains(t, told, tc.why, name)
		require.Equal(t, len(tc.e.Hashes)+2-len(tc.in), m.State().KeptOut[tc.why], name)
		apply(m, removed("", 51, 50), with(removed("", 0), func(e *events.Event) { e.Hashes = tc.e.Hashes }))
		require.Zero(t, m.State().Blocks, name)
	}
}

func TestAnAdapterIsItsNameOrItsMappedNumber(t *testing.T) {
	m := New(Options{Adapters: map[int64]string{3: "french"}}, start)
	lora := func(id int64, name string) func(*events.Event) {
		return func(e *events.Event) { e.HasLoraID, e.LoraID, e.LoraName = true, id, name }
	}
	own := with(with(stored(0, 2), lora(7, "greek")), func(e *events.Event) {
		e.Extra, e.ExtraBlocks = []events.ExtraKey{{Block: 0, Name: "greek"}}, 1
	})
	apply(m, with(stored(0, 1), lora(3, "")), own, stored(0, 3))
	expect(t, m, text(fpOf(1), size, 1, "french"), text(fpOf(2), size, 1, "greek"), t1(3))
	apply(m, with(stored(1, 4), lora(7, "greek")))
	require.EqualValues(t, 1, m.State().Counts.KeptOut[BadEvent], "a chain stays in its adapter")
}

func TestOnlyTheFullAttentionGroupIsMirrored(t *testing.T) {
	group := func(e events.Event, g int, kind string, window int64) events.Event {
		e.Group, e.SpecKind, e.SlidingWindow = g, kind, window
		return e
	}
	m := New(Options{}, start)
	apply(m, group(stored(0, 1), 0, "full_attention", 0), group(stored(0, 1, 2), 1, "sliding_window", 128),
		group(stored(0, 3), 2, "mamba", 0), group(stored(0, 4), 3, "", 64))
	expect(t, m, t1(1))
	apply(m, group(removed("", 1), 1, "", 0), group(removed("", 1), 7, "", 0))
	expect(t, m, t1(1))
	apply(m, group(removed("", 1), 0, "", 0))
	expect(t, m)
	require.EqualValues(t, 4, m.State().Counts.KeptOut[CacheGroup])

	m = New(Options{}, start)
	apply(m, group(stored(0, 1), 0, "", 0))
	expect(t, m, t1(1))
	apply(m, group(stored(0, 2), 1, "", 0), group(stored(0, 3), 0, "", 0))
	expect(t, m)
	require.EqualValues(t, 2, m.State().Counts.KeptOut[AmbiguousGroup])
}

func TestTwoBlocksWithOneFingerprintAreOneHold(t *testing.T) {
	m := New(Options{}, start)
	salted := with(stored(0, 1), func(e *events.Event) { e.Hashes = hs(77) })
	apply(m, stored(0, 1), salted, removed("", 1))
	expect(t, m, t1(1))
	apply(m, removed("", 77))
	expect(t, m)
}

func TestAnEngineThatKeepsEvictedBlocksTurnsThemT2UntilTheyAge(t *testing.T) {
	m := New(Options{KeepEvicted: true, KeepFor: time.Minute}, start)
	ix := newIndex()
	apply(m, stored(0, 1), removed("", 1))
	expect(t, m, t2(1))
	ix.drain(t, m, start)
	m.Refresh(1, 0, start.Add(59*time.Second))
	expect(t, m, t2(1))
	m.Refresh(1, 0, start.Add(61*time.Second))
	expect(t, m)
	require.Zero(t, m.State().Blocks)
}

func TestAClearedCacheIsOneRetiredNumber(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1, 2, 3))
	ix.drain(t, m, start)
	apply(m, events.Event{Kind: events.Cleared}, stored(0, 3))
	require.Equal(t, []string{"retire", t1(3)}, ix.drain(t, m, start))
	require.Empty(t, cmp.Diff(holds(m), ix.holds()))
}

func TestAfterALossOnlyWhatIsProvedStays(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1, 2, 3), stored(0, 10, 11))
	ix.drain(t, m, start)
	m.Lost()
	expect(t, m)
	apply(m, stored(0, 20))
	expect(t, m, t1(20))
	apply(m, stored(2, 4))
	expect(t, m, t1(20), t1(1), t1(1, 2), t1(1, 2, 4))
	ix.drain(t, m, start)
	require.Empty(t, cmp.Diff(holds(m), ix.holds()))
	require.Equal(t, 3, m.State().Doubtful)
	apply(m, removed("", 11))
	require.Equal(t, 2, m.State().Doubtful)
	m.Lost()
	require.Equal(t, 4, m.State().Doubtful, "3 and 10 were in doubt twice; 20, 1, 2 and 4 are now")
	require.Equal(t, 4, m.State().Blocks)
	m.Lost()
	m.Lost()
	require.Zero(t, m.State().Blocks)
}

func TestARestartForgetsTheOldEngine(t *testing.T) {
	m := New(Options{}, start)
	ix := newIndex()
	apply(m, stored(0, 1, 2))
	ix.drain(t, m, start)
	m.Reset()
	require.Equal(t, []string{"retire"}, ix.drain(t, m, start))
	require.Equal(t, 1, apply(m, stored(2, 3)))
	expect(t, m)
}

func TestABoundedMirrorKeepsOutWhatDoesNotFit(t *testing.T) {
	m := New(Options{MaxBlocks: 2}, start)
	apply(m, stored(0, 1, 2, 3))
	expect(t, m, t1(1), t1(1, 2))
	require.EqualValues(t, 1, m.State().Counts.KeptOut[Full])
}
