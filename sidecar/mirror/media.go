package mirror

import (
	"strings"

	"inferencecache.io/lookuptier/ranking"
)

// mediumBits is how many media one engine may have.
const mediumBits = 16

const (
	gpuBit = 1 << 0
	// evictedBit stands for the offload tier that is assumed to keep what the engine
	// evicts (Options.KeepEvicted). No event names it.
	evictedBit = 1 << 1
)

// DefaultMediumTiers says how far the media that engines name lie from the GPU.
// Any other is an offload tier, T2.
func DefaultMediumTiers() map[string]ranking.Tier {
	return map[string]ranking.Tier{"GPU": ranking.TierT1, "REMOTE": ranking.TierT3}
}

// media numbers the media of one engine as they are met.
type media struct {
	bits  map[string]uint16
	tiers [mediumBits]ranking.Tier
	known map[string]ranking.Tier
}

func newMedia(tiers map[string]ranking.Tier) *media {
	m := &media{known: DefaultMediumTiers(), bits: make(map[string]uint16)}
	for name, tier := range tiers {
		m.known[strings.ToUpper(name)] = min(max(tier, ranking.TierT1), ranking.TierT3)
	}
	m.bits["GPU"], m.tiers[0], m.tiers[1] = gpuBit, m.known["GPU"], ranking.TierT2
	m.bits[""] = gpuBit
	return m
}

// bit returns the medium's bit, 0 if there are too many.
func (m *media) bit(name string) uint16 {
	if b, ok := m.bits[name]; ok {
		return b
	}
	upper := strings.ToUpper(name)
	b, ok := m.bits[upper]
	if !ok {
		n := 2 // GPU and the assumed tier
		for _, other := range m.bits {
			for other>>n != 0 {
				n++
			}
		}
		if n >= mediumBits || len(name) > 64 {
			return 0
		}
		b = 1 << n
		m.tiers[n] = ranking.TierT2
		if tier, ok := m.known[upper]; ok {
			m.tiers[n] = tier
		}
		m.bits[upper] = b
	}
	if len(m.bits) < 4*mediumBits {
		m.bits[name] = b
	}
	return b
}

// tier is the warmest of the media in a set; TierNone for the empty set.
func (m *media) tier(set uint16) ranking.Tier {
	best := ranking.TierNone
	for n := 0; set != 0; n, set = n+1, set>>1 {
		if set&1 != 0 && (best == ranking.TierNone || m.tiers[n] < best) {
			best = m.tiers[n]
		}
	}
	return best
}
