package mirror

// table finds records of an arena by key. It keeps their indexes only, 4 bytes a
// slot, where a Go map would keep key and value again: the caller hashes and compares.
// Linear probing, at most three quarters full; deletion moves later entries back, so
// there are no tombstones to age.
type table struct {
	slots []uint32
	used  int
	// hash of the record with this index.
	hash func(uint32) uint64
}

const minSlots = 64

// find returns the index of the record with this hash that matches, or 0.
func (t *table) find(h uint64, matches func(uint32) bool) uint32 {
	if len(t.slots) == 0 {
		return 0
	}
	mask := uint64(len(t.slots) - 1)
	for s := h & mask; ; s = (s + 1) & mask {
		i := t.slots[s]
		if i == 0 || matches(i) {
			return i
		}
	}
}

// insert adds the index of a record that find does not know.
func (t *table) insert(h uint64, i uint32) {
	if t.used >= len(t.slots)/4*3 {
		t.resize(max(minSlots, 2*len(t.slots)))
	}
	t.place(h, i)
	t.used++
}

func (t *table) place(h uint64, i uint32) {
	mask := uint64(len(t.slots) - 1)
	s := h & mask
	for t.slots[s] != 0 {
		s = (s + 1) & mask
	}
	t.slots[s] = i
}

// remove takes out a record that is in the table. The record must still be readable.
func (t *table) remove(h uint64, i uint32) {
	mask := uint64(len(t.slots) - 1)
	s := h & mask
	for t.slots[s] != i {
		s = (s + 1) & mask
	}
	for hole := s; ; {
		s = (s + 1) & mask
		j := t.slots[s]
		if j == 0 {
			t.slots[hole] = 0
			break
		}
		// j may move back to the hole unless its own place lies after it.
		if home := t.hash(j) & mask; (s-home)&mask >= (s-hole)&mask {
			t.slots[hole] = j
			hole = s
		}
	}
	t.used--
	if len(t.slots) > minSlots && t.used < len(t.slots)/8 {
		t.resize(len(t.slots) / 2)
	}
}

func (t *table) resize(n int) {
	old := t.slots
	t.slots = make([]uint32, n)
	for _, i := range old {
		if i != 0 {
			t.place(t.hash(i), i)
		}
	}
}
