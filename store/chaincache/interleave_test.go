package chaincache

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// A walk is announced, read by Redis and brought back, and changes of the same blocks
// are applied: before, between and after, in every order there is.
func TestAWalkAndChangesOfItsBlocksInEveryOrder(t *testing.T) {
	sp := ranking.Space{Scheme: "s", Adapter: "space-0"}
	hashes := [][]byte{[]byte("block-00"), []byte("block-01"), []byte("block-02")}
	held := func(number uint32, seen int64, n int) *Change {
		ch := &Change{Number: number, Space: sp.Adapter, SeenMS: seen}
		for i, h := range hashes[:n] {
			ch.Held = append(ch.Held, Entry{Hash: h, Tier: 1, Tokens: int32(i)})
		}
		return ch
	}
	w := newWorld(2)
	w.change(held(1, 1, 3))
	w.change(held(2, 2, 2))
	w.change(&Change{Number: 1, Evicted: hashes[1:], Spaces: []string{sp.Adapter}})
	w.clear(2, true)
	w.change(held(1, 5, 2))
	w.clear(2, false)

	q := &Query{Space: sp, Hashes: hashes, Tokens: []int32{1, 2, 4}}
	last := w.now()
	filled := 0
	for announced := 0; announced <= last; announced++ {
		for landed := announced; landed <= last; landed++ {
			for read := 0; read <= last; read++ {
				name := fmt.Sprintf("announced at %d, read at %d, landed at %d", announced, read, landed)
				c := newTestCache(t, 1<<20)
				p := c.NewPartition(positionOf(announced))
				r := p.Read()
				at := announced
				apply := func() {
					require.NoError(t, p.Apply(w.changes[at]), name)
					at++
				}
				for at < landed {
					apply()
				}
				err := r.Fill(w.walk(read, sp, hashes, 0))
				r.End()
				switch {
				case read > landed:
					require.ErrorIs(t, err, ErrAhead, name)
				case read < announced:
					require.ErrorIs(t, err, ErrRefused, name)
				default:
					require.NoError(t, err, name)
					filled++
				}
				var a Answer
				for {
					p.Lookup(q, &a)
					if a.Complete {
						if diff := cmp.Diff(w.states[at].answer(q), a.byNumber()); diff != "" {
							t.Fatalf("%s: the answer at %d (-want +got):\n%s", name, at, diff)
						}
					}
					if at == last {
						break
					}
					apply()
				}
				check(t, c, p)
			}
		}
	}
	require.Positive(t, filled)
}
