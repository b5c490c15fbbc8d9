package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

func TestOnlyReadsOfTheSameAreShared(t *testing.T) {
	p := Partition{Scope: ranking.Scope{Tenant: "t", Model: "m"}}
	q := func(hashes ...string) *ranking.Query {
		q := &ranking.Query{Scope: p.Scope, Space: ranking.Space{Scheme: "s"}}
		for _, h := range hashes {
			q.Hashes = append(q.Hashes, []byte(h))
		}
		return q
	}
	var written absentees
	before := written.mark(p)
	written.wrote(p)
	after := written.mark(p)

	key := readKey(p, before, q("a", "bc"), 0, false)
	require.Equal(t, key, readKey(p, before, q("a", "bc"), 0, false))
	other := q("a", "bc")
	other.Adapter = "lora"
	for name, different := range map[string]string{
		"other blocks":           readKey(p, before, q("ab", "c"), 0, false),
		"from another block":     readKey(p, before, q("a", "bc"), 1, false),
		"another space":          readKey(p, before, other, 0, false),
		"another shard":          readKey(Partition{Scope: p.Scope, Shard: 1}, before, q("a", "bc"), 0, false),
		"after a write of ours":  readKey(p, after, q("a", "bc"), 0, false),
		"the head, not a chain":  readKey(p, before, q("a", "bc"), 0, true),
		"fewer blocks than that": readKey(p, before, q("a"), 0, false),
	} {
		require.NotEqual(t, key, different, name)
	}
}

func TestWhatIsAbsentIsForgottenByAWrite(t *testing.T) {
	var a absentees
	p := Partition{Scope: ranking.Scope{Tenant: "t", Model: "m"}}
	s := &shardAnswer{p: p}
	require.False(t, a.answer(s, 0))
	mark := a.mark(p)
	a.note(p, mark, View{NowMS: 5000, Head: &Head{}}, 100)
	require.True(t, a.answer(s, 149))
	require.EqualValues(t, 5049, s.nowMS)
	require.False(t, a.answer(s, 150), "others may have written by now: 50 ms is all that they wait")
	a.wrote(p)
	require.False(t, a.answer(s, 120))
	a.note(p, mark, View{NowMS: 5000, Head: &Head{}}, 100)
	require.False(t, a.answer(s, 120), "the read began before the write")
	for i := range 3 * maxAbsent {
		p := Partition{Scope: p.Scope, Shard: i}
		a.note(p, a.mark(p), View{}, int64(i))
	}
	require.LessOrEqual(t, len(a.byName), maxAbsent)
}
