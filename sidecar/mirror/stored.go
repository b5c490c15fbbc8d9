package mirror

import (
	"fmt"
	"hash/maphash"
	"math"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/events"
)

// place is where in a chain, and whether at all, the next block of an event stands.
type place struct {
	parent  uint32 // block, 0 = root
	fp      uint64 // of the parent
	tokens  int32  // running sum through the parent
	adapter uint16
	why     Reason // kept out, and so is all that follows
}

func (m *Mirror) stored(e *events.Event) {
	use, ambiguous := m.groups.learn(e)
	if ambiguous {
		// Whatever was taken for the only group may be the wrong one.
		g := m.groups
		m.empty()
		m.groups = g
	}
	switch {
	case use == groupOther:
		m.keepOut(CacheGroup, len(e.Hashes), "group %d is of kind %q", e.Group, e.SpecKind)
		return
	case use == groupUndeclared && m.groups.undeclared > 1:
		m.keepOut(AmbiguousGroup, len(e.Hashes), "the engine has several cache groups and does not say their kind")
		return
	}
	bit := m.media.bit(e.Medium)
	if bit == 0 {
		m.keepOut(TooManyMedia, len(e.Hashes), "medium %q", e.Medium)
		return
	}
	if len(e.Tokens) == 0 && len(e.Hashes) > 0 {
		m.announced(e, bit)
		return
	}
	at := m.locate(e, bit)
	extra := 0
	for n, hash := range e.Hashes {
		for ; extra < len(e.Extra) && e.Extra[extra].Block <= n; extra++ {
			if k := &e.Extra[extra]; at.why == 0 && (k.Name == "" || k.Name != m.adapters[at.adapter]) {
				at.why = ExtraKeys
				m.keepOut(ExtraKeys, len(e.Hashes)-n, "a block depends on more than its tokens: multimodal content, a cache salt or prompt embeddings")
			}
		}
		if at.why == 0 {
			content := ranking.ContentHash(e.Tokens[n*e.BlockSize : (n+1)*e.BlockSize])
			if at.tokens == 0 {
				at.fp = content
			} else {
				at.fp = ranking.PrefixHash(at.fp, content)
			}
			at.tokens = int32(min(int64(at.tokens)+int64(e.BlockSize), math.MaxInt32))
		}
		if !m.put(hash, &at, bit) {
			m.keepOut(Full, len(e.Hashes)-n, "the mirror holds its limit of %d blocks", m.opts.MaxBlocks)
			return
		}
	}
}

// locate finds where the event's first block stands.
func (m *Mirror) locate(e *events.Event, bit uint16) place {
	at := place{}
	reject := func(r Reason, format string, args ...any) {
		if at.why == 0 {
			at.why = r
			m.keepOut(r, len(e.Hashes), format, args...)
		}
	}
	name, mapped := m.adapterName(e)
	if !mapped {
		reject(UnmappedAdapter, "lora_id %d has no name: map it with --lora-adapter-names", e.LoraID)
	} else if n, ok := m.adapterOf(name); ok {
		at.adapter = n
	} else {
		reject(TooManyAdapters, "adapter %q", name)
	}
	switch {
	case e.BlockSize < 1 || len(e.Tokens) != e.BlockSize*len(e.Hashes):
		reject(BadEvent, "%d token ids for %d blocks of %d", len(e.Tokens), len(e.Hashes), e.BlockSize)
	case e.ExtraBlocks != 0 && e.ExtraBlocks != len(e.Hashes):
		reject(BadEvent, "%d extra_keys for %d blocks", e.ExtraBlocks, len(e.Hashes))
	default:
		m.blockSize = e.BlockSize
	}
	if !e.HasParent {
		return at
	}
	at.parent = m.find(e.Parent)
	if at.parent == 0 {
		reject(UnknownParent, "the sidecar joined late or lost events")
		return at
	}
	p := m.blocks.at(at.parent)
	if p.hold == 0 {
		reject(p.why, "the block continues one that is kept out")
		return at
	}
	h := m.ledger.holds.at(p.hold)
	if h.adapter != at.adapter && at.why == 0 {
		reject(BadEvent, "a block of adapter %q continues one of adapter %q", name, m.adapters[h.adapter])
	}
	at.fp, at.tokens = h.fp, h.tokens
	if bit == gpuBit {
		m.witness(at.parent)
	}
	return at
}

// adapterName is the identity of the event's adapter; "" is none.
func (m *Mirror) adapterName(e *events.Event) (name string, mapped bool) {
	if e.LoraName != "" {
		return e.LoraName, true
	}
	if !e.HasLoraID {
		return "", true
	}
	name, mapped = m.opts.Adapters[e.LoraID]
	return name, mapped
}

// put enters one block at a place and moves the place behind it. It returns false if
// the mirror is full.
func (m *Mirror) put(hash events.Hash, at *place, bit uint16) bool {
	i := m.find(hash)
	if i == 0 {
		if m.blocks.len() >= m.opts.MaxBlocks {
			return false
		}
		i = m.blocks.add()
		m.blocks.at(i).hash = hash
		m.byHash.insert(maphash.Comparable(m.ledger.seed, hash), i)
	}
	b := m.blocks.at(i)
	old := m.relink(i, b, at)
	m.rebind(b, at)
	m.setMedia(b, b.media|bit)
	m.free(old)
	at.parent = i
	return true
}

// relink gives a block the parent of a place. It returns the parent that it had before, which
// may be nobody's any more.
func (m *Mirror) relink(i uint32, b *block, at *place) (old uint32) {
	if b.parent == at.parent || at.parent == i {
		return 0
	}
	old, b.parent = b.parent, at.parent
	if b.parent != 0 {
		m.blocks.at(b.parent).kids++
	}
	if old != 0 {
		m.blocks.at(old).kids--
	}
	return old
}

// rebind gives a block the hold and the reason of a place.
func (m *Mirror) rebind(b *block, at *place) {
	if b.hold != 0 && at.why == 0 {
		if h := m.ledger.holds.at(b.hold); h.fp == at.fp && h.adapter == at.adapter {
			return
		}
	}
	// Whatever the block counted for before, it starts from no medium.
	set := b.media
	if b.hold != 0 || b.why != 0 {
		m.setMedia(b, 0)
	}
	if b.hold != 0 {
		hold := b.hold
		b.hold = 0
		m.ledger.release(hold)
	}
	b.why = at.why
	if at.why == 0 {
		b.hold = m.ledger.acquire(at.fp, at.adapter, at.tokens)
	}
	if set != 0 {
		m.setMedia(b, set)
	}
}

// announced takes an offload tier's event that names blocks by hash alone.
func (m *Mirror) announced(e *events.Event, bit uint16) {
	if e.BlockSize != m.blockSize && e.BlockSize != 0 && m.blockSize != 0 {
		m.keepOut(BlockSize, len(e.Hashes), "medium %q has blocks of %d tokens, the engine of %d", e.Medium, e.BlockSize, m.blockSize)
		return
	}
	unknown := 0
	for _, hash := range e.Hashes {
		i := m.find(hash)
		if i == 0 {
			unknown++
			continue
		}
		b := m.blocks.at(i)
		m.setMedia(b, b.media|bit)
	}
	if unknown > 0 {
		m.keepOut(NoTokens, unknown, "medium %q announced blocks without token ids that the mirror does not know", e.Medium)
	}
}

func (m *Mirror) keepOut(r Reason, blocks int, format string, args ...any) {
	m.counts.KeptOut[r] += int64(blocks)
	if m.opts.KeptOut != nil {
		m.opts.KeptOut(r, blocks, fmt.Sprintf(format, args...))
	}
}
