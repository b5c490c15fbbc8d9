package mirror

// pageSize is how many records an arena allocates at once: growth copies nothing,
// so a cache of a million blocks never needs twice its memory for a moment.
const pageSize = 4096

// arena hands out records by index. Index 0 is never handed out: it means none.
type arena[T any] struct {
	pages [][]T
	free  []uint32
	next  uint32
}

func (a *arena[T]) at(i uint32) *T { return &a.pages[i/pageSize][i%pageSize] }

// add returns the index of a zero record.
func (a *arena[T]) add() uint32 {
	if n := len(a.free); n > 0 {
		i := a.free[n-1]
		a.free = a.free[:n-1]
		return i
	}
	if a.next == 0 {
		a.next = 1
	}
	i := a.next
	if int(i/pageSize) == len(a.pages) {
		a.pages = append(a.pages, make([]T, pageSize))
	}
	a.next++
	return i
}

func (a *arena[T]) drop(i uint32) {
	var zero T
	*a.at(i) = zero
	a.free = append(a.free, i)
}

// len is how many records are in use.
func (a *arena[T]) len() int { return max(int(a.next), 1) - 1 - len(a.free) }

// end is one more than the highest index ever handed out.
func (a *arena[T]) end() uint32 { return max(a.next, 1) }
