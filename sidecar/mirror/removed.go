package mirror

import "inferencecache.io/lookuptier/sidecar/events"

func (m *Mirror) removed(e *events.Event) {
	if !m.groups.usable(e.Group) {
		return
	}
	bit := m.media.bit(e.Medium)
	for _, hash := range e.Hashes {
		i := m.find(hash)
		if i == 0 {
			m.counts.RemovedUnknown++
			continue
		}
		b := m.blocks.at(i)
		if b.doubt != 0 && bit != gpuBit {
			continue // what other media have of it is as doubtful as before
		}
		if b.media&bit == 0 && b.doubt == 0 {
			m.counts.RemovedUnknown++
			continue
		}
		set := b.media &^ bit
		if m.opts.KeepEvicted && bit == gpuBit && b.media&gpuBit != 0 && b.hold != 0 {
			set |= evictedBit
		}
		m.setMedia(b, set)
		m.free(i)
	}
}
