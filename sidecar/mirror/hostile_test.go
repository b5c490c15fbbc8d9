package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/sidecar/events"
)

// TestNoEventsHoweverOddBreakTheMirror: parents that are their own children, hashes that change their content, ranks of
// extra keys, groups and media at random. The index must follow, and a cleared engine must leave nothing.
func TestNoEventsHoweverOddBreakTheMirror(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, ix := New(Options{KeepEvicted: rapid.Bool().Draw(t, "keep"), MaxBlocks: 12, Adapters: map[int64]string{1: "a"}}, start), newIndex()
		hash := rapid.Map(rapid.Uint64Range(0, 15), h)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			e := events.Event{
				Kind:      rapid.SampledFrom([]events.Kind{events.Stored, events.Stored, events.Stored, events.Removed, events.Cleared}).Draw(t, "kind"),
				Hashes:    rapid.SliceOfN(hash, 0, 4).Draw(t, "hashes"),
				HasParent: rapid.Bool().Draw(t, "hasParent"), Parent: hash.Draw(t, "parent"),
				BlockSize: rapid.IntRange(0, 2).Draw(t, "size"),
				LoraID:    rapid.Int64Range(1, 2).Draw(t, "lora"), HasLoraID: rapid.IntRange(0, 3).Draw(t, "hasLora") == 0,
				Medium:   rapid.SampledFrom([]string{"", "GPU", "CPU", "REMOTE"}).Draw(t, "medium"),
				Group:    rapid.SampledFrom([]int{events.NoGroup, events.NoGroup, 0, 1}).Draw(t, "group"),
				SpecKind: rapid.SampledFrom([]string{"", "full_attention", "mamba"}).Draw(t, "spec"),
			}
			for range rapid.SampledFrom([]int{e.BlockSize * len(e.Hashes), e.BlockSize * len(e.Hashes), 0, 3}).Draw(t, "tokens") {
				e.Tokens = append(e.Tokens, rapid.Uint32Range(0, 2).Draw(t, "token"))
			}
			if rapid.IntRange(0, 4).Draw(t, "extra") == 0 {
				e.ExtraBlocks = len(e.Hashes)
				e.Extra = []events.ExtraKey{{Block: rapid.IntRange(0, 3).Draw(t, "at"), Name: "a"}}
			}
			apply(m, e)
			switch rapid.IntRange(0, 9).Draw(t, "then") {
			case 0:
				m.Lost()
			case 1:
				m.Reset()
			case 2:
				ix.drain(t, m, start)
			case 3:
				m.Refresh(0.5, 0, start)
			}
		}
		ix.drain(t, m, start)
		if diff := cmp.Diff(holds(m), ix.holds()); diff != "" {
			t.Fatal(diff)
		}
		s := m.State()
		if s.Blocks > 12 {
			t.Fatalf("%d blocks", s.Blocks)
		}
		m.Reset()
		ix.drain(t, m, start)
		if s := m.State(); s.Blocks+s.Doubtful+s.Resident[1]+s.Resident[2]+s.Resident[3]+m.ledger.holds.len() != 0 || len(ix.has) != 0 {
			t.Fatalf("left: %+v, %d holds", s, m.ledger.holds.len())
		}
		for _, n := range s.KeptOut {
			if n < 0 {
				t.Fatalf("counts below zero: %+v", s.KeptOut)
			}
		}
	})
}
