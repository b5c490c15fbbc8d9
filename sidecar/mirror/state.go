package mirror

import "inferencecache.io/lookuptier/ranking"

// State is what a mirror holds at a moment.
type State struct {
	// Blocks of the engine that the mirror keeps in mind, whatever for.
	Blocks int
	// Resident counts fingerprints by tier (index 1 to 3).
	Resident [4]int
	// KeptOut counts blocks that some medium has and the index must not, by reason.
	KeptOut [reasons]int
	// Doubtful counts blocks of which lost events may have told the end.
	Doubtful int
	// Pending counts changes that the index was not told yet.
	Pending int
	Counts  Counts
}

// State reads the mirror's gauges and counters.
func (m *Mirror) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return State{
		Blocks:   m.blocks.len(),
		Resident: m.ledger.resident,
		KeptOut:  m.keptOut,
		Doubtful: m.doubtful,
		Pending:  m.ledger.pending(),
		Counts:   m.counts,
	}
}

// Resident lists what the index should have, in no order: for audits and tests.
func (m *Mirror) Resident() []Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Change
	m.ledger.each(func(_ uint32, h *hold) {
		if want := h.want(); want != ranking.TierNone {
			all = append(all, Change{FP: h.fp, Adapter: m.adapters[h.adapter], Tokens: h.tokens, Tier: want})
		}
	})
	return all
}
