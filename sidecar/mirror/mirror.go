package mirror

import (
	"hash/maphash"
	"sync"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar/events"
)

// DefaultMaxBlocks is more than any engine holds today; at about 80 bytes a block
// it bounds a mirror to some 700 MB.
const DefaultMaxBlocks = 8 << 20

// Options of a Mirror. The zero value mirrors an engine without adapters.
type Options struct {
	// Adapters names adapters by their lora_id, for engines that send no name.
	Adapters map[int64]string
	// Media says how far media lie from the GPU, beyond DefaultMediumTiers.
	Media map[string]ranking.Tier
	// KeepEvicted: an offload tier that announces nothing keeps what the engine evicts,
	// so a removal from the engine's cache makes the block T2. Such a block is
	// forgotten when it was last written KeepFor ago.
	KeepEvicted bool
	KeepFor     time.Duration
	// MaxBlocks bounds the mirror; 0 = DefaultMaxBlocks.
	MaxBlocks int
	// Paused: begin as after Pause.
	Paused bool
	// KeptOut hears of each event with blocks that are kept out of the index, with how many
	// and what an operator should know; called with the Mirror locked. nil = nobody listens.
	KeptOut func(r Reason, blocks int, detail string)
}

// block is one block of the engine: 32 bytes.
type block struct {
	hash events.Hash
	// hold is the block's place in the index, 0 if the block is kept out.
	hold uint32
	// parent is the block before it, 0 at a root. A block with kids is not freed, so the
	// link is never another block's.
	parent uint32
	kids   uint32
	// media is the set of media that have the block.
	media uint16
	// why the block is kept out, 0 if it is not.
	why Reason
	// doubt: events were lost, so nobody knows which media have it; media is empty then.
	// The value is the parity of the loss, 1 or 2.
	doubt uint8
}

// Mirror is one engine cache (one data-parallel rank). It is safe for concurrent use.
type Mirror struct {
	mu     sync.Mutex
	opts   Options
	born   time.Time
	blocks arena[block]
	byHash table
	ledger ledger
	media  *media

	adapters     []string
	adapterIndex map[string]uint16
	groups       groups
	// blockSize is that of the last event with tokens, for announcements without.
	blockSize int
	losses    uint8
	cursor    uint32
	keptOut   [reasons]int // blocks in some medium, by reason
	doubtful  int
	counts    Counts
	wake      chan struct{}
}

// Counts are cumulative.
type Counts struct {
	// Stored, Removed and Cleared count events; the blocks are those in them.
	Stored, StoredBlocks, Removed, RemovedBlocks, Cleared int64
	// RemovedUnknown counts removals of blocks, or of a block from a medium, that were never seen.
	RemovedUnknown int64
	// KeptOut counts blocks of events that were kept out, by reason.
	KeptOut [reasons]int64
}

// New makes an empty mirror. now is the clock's present, here and in all calls.
func New(o Options, now time.Time) *Mirror {
	if o.MaxBlocks == 0 {
		o.MaxBlocks = DefaultMaxBlocks
	}
	m := &Mirror{opts: o, born: now, wake: make(chan struct{}, 1), adapterIndex: make(map[string]uint16)}
	m.ledger.init()
	m.ledger.paused = o.Paused
	m.resetBlocks()
	m.adapterOf("")
	return m
}

func (m *Mirror) resetBlocks() {
	m.blocks = arena[block]{}
	m.byHash = table{hash: func(i uint32) uint64 {
		return maphash.Comparable(m.ledger.seed, m.blocks.at(i).hash)
	}}
	m.media = newMedia(m.opts.Media)
	m.groups = groups{}
	m.keptOut = [reasons]int{}
	m.doubtful, m.cursor = 0, 0
}

func (m *Mirror) find(h events.Hash) uint32 {
	return m.byHash.find(maphash.Comparable(m.ledger.seed, h), func(i uint32) bool { return m.blocks.at(i).hash == h })
}

// adapterOf numbers an adapter's name; ok is false if there are too many.
func (m *Mirror) adapterOf(name string) (n uint16, ok bool) {
	if n, ok = m.adapterIndex[name]; ok {
		return n, true
	}
	if len(m.adapters) >= 1<<16-1 {
		return 0, false
	}
	n = uint16(len(m.adapters))
	m.adapters = append(m.adapters, name)
	m.adapterIndex[name] = n
	return n, true
}

// Apply takes one decoded batch of the engine. It returns how many blocks had a
// parent that the mirror does not know; a replay may help them.
func (m *Mirror) Apply(b *events.Batch) (orphans int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.counts.KeptOut[UnknownParent]
	for i := range b.Events {
		e := &b.Events[i]
		switch e.Kind {
		case events.Stored:
			m.counts.Stored++
			m.counts.StoredBlocks += int64(len(e.Hashes))
			m.stored(e)
		case events.Removed:
			m.counts.Removed++
			m.counts.RemovedBlocks += int64(len(e.Hashes))
			m.removed(e)
		case events.Cleared:
			m.counts.Cleared++
			m.empty()
		}
	}
	m.signal()
	return int(m.counts.KeptOut[UnknownParent] - before)
}

// Reset says that the engine started anew: its cache is empty, and nothing that
// the old one said holds.
func (m *Mirror) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.empty()
	m.ledger.urgent = true
	m.signal()
}

// RetireFirst asks to retire the replica's number and then to write everything resident again:
// nobody knows what the index has of it.
func (m *Mirror) RetireFirst() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.retire, m.ledger.urgent = true, !m.ledger.paused
	m.signal()
}

// empty drops all blocks and asks to retire the replica's number, one write whatever
// it held.
func (m *Mirror) empty() {
	m.resetBlocks()
	m.unwantAll()
	m.ledger.retire = true
}

// unwantAll takes every block out of the ledger.
func (m *Mirror) unwantAll() {
	l := &m.ledger
	l.each(func(i uint32, h *hold) {
		before := h.want()
		h.copies, h.refs = [3]uint32{}, 0
		l.rewant(i, h, before)
		l.reap(i)
	})
}

// Changed is signalled, once for any number of changes, when something waits to be written.
func (m *Mirror) Changed() <-chan struct{} { return m.wake }

func (m *Mirror) signal() {
	if m.ledger.pending() == 0 {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// free drops a block that no medium has and that no block continues, and then the
// ancestors that it alone kept.
func (m *Mirror) free(i uint32) {
	for i != 0 {
		b := m.blocks.at(i)
		if b.media != 0 || b.doubt != 0 || b.kids > 0 {
			return
		}
		if b.hold != 0 {
			m.ledger.release(b.hold)
		}
		parent := b.parent
		m.byHash.remove(maphash.Comparable(m.ledger.seed, b.hash), i)
		m.blocks.drop(i)
		if parent != 0 {
			m.blocks.at(parent).kids--
		}
		i = parent
	}
}

// setMedia changes which media have a block, certain from now on.
func (m *Mirror) setMedia(b *block, set uint16) {
	if b.doubt != 0 {
		b.doubt = 0
		m.doubtful--
	}
	if b.hold != 0 {
		m.ledger.move(b.hold, m.media.tier(b.media), m.media.tier(set))
	} else {
		m.keptOut[b.why] += present(set) - present(b.media)
	}
	b.media = set
}

func present(set uint16) int {
	if set != 0 {
		return 1
	}
	return 0
}
