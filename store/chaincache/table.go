package chaincache

import "sync/atomic"

// table is a hash table of pointers that is read without a lock while one writer
// at a time changes it. What an entry's key is, its user knows: find hands out
// candidates. It is split in parts, so that growing one moves few entries.
//
// A reader may miss an entry that is put while it looks; it never sees one half made.
type table[T any] struct {
	parts [tableParts]atomic.Pointer[part[T]]
	hash  func(*T) uint64
}

const (
	tableParts = 32
	partShift  = 59 // the top 5 bits choose the part
	minSlots   = 8
	slotBytes  = 8
	growAt     = 2 // a part is rebuilt before more than 1/growAt of its slots are used
)

// part is linear probing over a power of two of slots. A slot goes from empty to
// an entry, and between entries and gone; never back to empty.
type part[T any] struct {
	slots []atomic.Pointer[T]
	used  int // slots that are not empty; writer only
	live  int // slots with an entry; writer only
	gone  *T  // marks a slot whose entry was taken out
}

// cursor walks over the candidates of a hash.
type cursor[T any] struct {
	p *part[T]
	i uint64
}

func (t *table[T]) seek(h uint64) cursor[T] {
	p := t.parts[h>>partShift].Load()
	if p == nil {
		return cursor[T]{}
	}
	return cursor[T]{p: p, i: h}
}

// next is the next candidate; nil at the end.
func (c *cursor[T]) next() *T {
	if c.p == nil {
		return nil
	}
	mask := uint64(len(c.p.slots) - 1)
	for {
		e := c.p.slots[c.i&mask].Load()
		c.i++
		if e != c.p.gone {
			return e
		}
	}
}

// put adds an entry that is not in the table, and returns by how many bytes the table grew.
func (t *table[T]) put(e *T) int64 {
	h := t.hash(e)
	p := t.parts[h>>partShift].Load()
	var grown int64
	if p == nil || (p.used+1)*growAt > len(p.slots) {
		p, grown = t.rebuild(h>>partShift, p)
	}
	mask := uint64(len(p.slots) - 1)
	for i := h; ; i++ {
		switch slot := &p.slots[i&mask]; slot.Load() {
		case nil:
			p.used++
			p.live++
			slot.Store(e)
			return grown
		case p.gone:
			p.live++
			slot.Store(e)
			return grown
		}
	}
}

// swap puts an entry in the place of another with the same hash.
func (t *table[T]) swap(old, e *T) {
	if slot, _ := t.slotOf(old); slot != nil {
		slot.Store(e)
	}
}

// remove takes an entry out.
func (t *table[T]) remove(e *T) {
	if slot, p := t.slotOf(e); slot != nil {
		p.live--
		slot.Store(p.gone)
	}
}

func (t *table[T]) slotOf(e *T) (*atomic.Pointer[T], *part[T]) {
	h := t.hash(e)
	p := t.parts[h>>partShift].Load()
	if p == nil {
		return nil, nil
	}
	mask := uint64(len(p.slots) - 1)
	for i := h; ; i++ {
		switch slot := &p.slots[i&mask]; slot.Load() {
		case nil:
			return nil, nil
		case e:
			return slot, p
		}
	}
}

// rebuild moves a part's entries to new slots, a quarter full or less.
func (t *table[T]) rebuild(at uint64, old *part[T]) (*part[T], int64) {
	size := minSlots
	var before int64
	if old != nil {
		for size < (old.live+1)*4 {
			size *= 2
		}
		before = int64(len(old.slots)) * slotBytes
	}
	p := &part[T]{slots: make([]atomic.Pointer[T], size), gone: new(T)}
	if old != nil {
		mask := uint64(size - 1)
		for i := range old.slots {
			e := old.slots[i].Load()
			if e == nil || e == old.gone {
				continue
			}
			j := t.hash(e)
			for p.slots[j&mask].Load() != nil {
				j++
			}
			p.slots[j&mask].Store(e)
			p.used++
			p.live++
		}
	}
	t.parts[at].Store(p)
	return p, int64(size)*slotBytes - before
}

// bytes is the memory of the slots.
func (t *table[T]) bytes() (n int64) {
	for i := range t.parts {
		if p := t.parts[i].Load(); p != nil {
			n += int64(len(p.slots)) * slotBytes
		}
	}
	return n
}
