package chaincache

import (
	"cmp"
	"fmt"
)

// Position is a place in a partition's change log: the id of the last entry that
// was taken in. The zero value is before the first entry.
type Position struct {
	MS  uint64
	Seq uint64
}

// Compare is negative if p comes before o, positive if after, else 0.
func (p Position) Compare(o Position) int {
	if c := cmp.Compare(p.MS, o.MS); c != 0 {
		return c
	}
	return cmp.Compare(p.Seq, o.Seq)
}

// String is the form that the log uses for ids.
func (p Position) String() string { return fmt.Sprintf("%d-%d", p.MS, p.Seq) }
