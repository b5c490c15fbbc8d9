package mirror

// Lost says that events are missing and cannot be had again. A removal may be
// among them, so no block seen before is certain to be there still: all are taken out
// of the index, and kept in mind. What is stored from now on is certain. So is a
// block that a later event continues, with all its ancestors: the engine could not
// have built on them otherwise. Both come back without a replay.
//
// A block in doubt is forgotten when it is still so at the next loss.
func (m *Mirror) Lost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.losses++
	now := 1 + m.losses%2
	var stale []uint32
	for i := uint32(1); i < m.blocks.end(); i++ {
		b := m.blocks.at(i)
		if b.doubt != 0 {
			stale = append(stale, i)
			continue
		}
		if b.media != 0 {
			m.setMedia(b, 0)
			b.doubt = now
			m.doubtful++
		}
	}
	for _, i := range stale {
		if b := m.blocks.at(i); b.doubt != 0 && b.doubt != now {
			m.setMedia(b, 0)
			m.free(i)
		}
	}
	// Everything went at once, so one retired number says it all.
	m.ledger.retire, m.ledger.urgent = true, true
	m.signal()
}

// witness: a block was stored behind this one, so this one and its ancestors are in
// the engine's cache.
func (m *Mirror) witness(i uint32) {
	for i != 0 {
		b := m.blocks.at(i)
		if b.doubt == 0 {
			return
		}
		m.setMedia(b, gpuBit)
		i = b.parent
	}
}
