package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store/chaincache"
)

// recorded is a log, and what the index held at the end of each of its entries.
type recorded struct {
	c       *Cached
	p       Partition
	sp      ranking.Space
	hashes  [][]byte
	entries []redis.XMessage
	views   []View // views[i]: with entries[:i+1]
	want    []map[string]ranking.Run
}

// record plays changes of every kind: heads that the log tells and heads that it does not.
func record(t *testing.T) *recorded {
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := Open(ctx, Options{Redis: rdb})
	require.NoError(t, err)
	c, err := NewCached(s, CachedOptions{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	scope := ranking.Scope{Tenant: "acme", Model: "llama"}
	rec := &recorded{c: c, p: Partition{Scope: scope}, sp: ranking.Space{Scheme: "vllm"}, hashes: [][]byte{[]byte("b0"), []byte("b1")}}
	report := func(replica string, blocks int) func() error {
		r := &ranking.Report{Scope: scope, Replica: replica, Scheme: "vllm"}
		for i, h := range rec.hashes[:blocks] {
			r.Entries = append(r.Entries, ranking.Entry{Hash: h, Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1})
		}
		return func() error { return s.Report(ctx, r) }
	}
	publish := func(kind ranking.EventKind, replica string, hash []byte) func() error {
		return func() error {
			return s.Publish(ctx, &ranking.Event{Kind: kind, Scope: scope, Replica: replica, Hash: hash})
		}
	}
	for _, change := range []func() error{
		report("a", 2),
		func() error {
			return s.Report(ctx, &ranking.Report{Scope: scope, Replica: "a", Stats: &ranking.Stats{HitRate: 0.5}})
		},
		report("b", 1),
		publish(ranking.EventCleared, "a", nil),
	} {
		require.NoError(t, change())
		v, err := s.Read(ctx, rec.p, rec.sp, rec.hashes)
		require.NoError(t, err)
		ev := new(ranking.Evidence)
		require.NoError(t, s.Match(ctx, rec.query(), ev))
		rec.views = append(rec.views, v)
		rec.want = append(rec.want, byID(ev.Serving, ev.Runs))
	}
	rec.entries, err = rdb.XRange(ctx, rec.p.Keys().Log(), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, rec.entries, len(rec.views))
	return rec
}

func (r *recorded) query() *ranking.Query {
	return &ranking.Query{Scope: r.p.Scope, Space: r.sp, Hashes: r.hashes, Tokens: []int32{16, 16}, TTLMS: 1 << 40}
}

// byID has the runs by replica, with the replica's hit rate as evidence of its head.
func byID(replicas []ranking.Replica, runs []ranking.Run) map[string]ranking.Run {
	m := map[string]ranking.Run{}
	for _, run := range runs {
		r := replicas[run.Replica]
		run.Replica = 0
		m[fmt.Sprint(r.ID, " ", r.Stats.HitRate)] = run
	}
	return m
}

func (r *recorded) pos(t *testing.T, i int) chaincache.Position {
	pos, err := parsePosition(r.entries[i].ID)
	require.NoError(t, err)
	return pos
}

// start is a partition that stands at the first entry. No follower knows of it.
func (r *recorded) start(t *testing.T) *followed {
	f := &followed{c: r.c, p: r.p, keys: r.p.Keys(), memory: r.c.memory.NewPartition(r.pos(t, 0))}
	r.fill(t, f, 0, r.hashes)
	return f
}

// fill is what a lookup reads at a position: its head, and blocks.
func (r *recorded) fill(t *testing.T, f *followed, i int, hashes [][]byte) {
	reading := f.memory.Read()
	defer reading.End()
	w := &chaincache.Walked{Space: r.sp, Key: SpaceSuffix(r.sp), Hashes: hashes, Pos: r.pos(t, i), Head: f.headFor(r.views[i].Head)}
	if len(hashes) > 0 {
		w.Holds = r.c.decoded(r.p, r.views[i], hashes)
	}
	require.NoError(t, reading.Fill(w))
}

// stands is how many entries the memory has.
func (r *recorded) stands(t *testing.T, f *followed) int {
	at := f.memory.Position()
	for i := range r.entries {
		if r.pos(t, i) == at {
			return i + 1
		}
	}
	t.Fatalf("the memory stands at %v, which is no entry", at)
	return 0
}

// check compares memory with what the index held where it stands.
func (r *recorded) check(t *testing.T, f *followed, name string) {
	i := r.stands(t, f) - 1
	if f.memory.Head() == nil {
		r.fill(t, f, i, nil)
	}
	var a chaincache.Answer
	f.memory.Lookup(&chaincache.Query{Space: r.sp, Hashes: r.hashes, Tokens: []int32{16, 16}, NowMS: r.views[i].NowMS}, &a)
	require.True(t, a.Complete, name)
	var serving []ranking.Replica
	if a.Roster != nil {
		serving = a.Roster.Replicas
	}
	if diff := cmp.Diff(r.want[i], byID(serving, a.Runs)); diff != "" {
		t.Fatalf("%s: with %d entries (-index +memory):\n%s", name, i+1, diff)
	}
}

// The follower and own writes each read the log from where the memory stands and apply
// what they read, while changes land: in every order of two rounds of both and three changes.
func TestOwnWritesAndTheFollowerApplyInEveryOrder(t *testing.T) {
	t.Parallel()
	rec := record(t)
	orders := 0
	var play func(order []byte, left map[byte]int)
	play = func(order []byte, left map[byte]int) {
		done := true
		for _, actor := range []byte("wof") { // a write lands, own writes, the follower
			if left[actor] > 0 {
				done = false
				left[actor]--
				play(append(order, actor), left)
				left[actor]++
			}
		}
		if !done {
			return
		}
		orders++
		f := rec.start(t)
		landed := 1
		read := map[byte][]redis.XMessage{}
		for _, actor := range order {
			if actor == 'w' {
				landed++
				continue
			}
			if entries, ok := read[actor]; ok {
				delete(read, actor)
				before := rec.stands(t, f)
				rec.c.take(f, entries)
				require.False(t, f.dropped.Load(), "%s", order)
				after := rec.stands(t, f)
				require.GreaterOrEqual(t, after, before, "%s", order)
				if len(entries) > 0 {
					last, err := parsePosition(entries[len(entries)-1].ID)
					require.NoError(t, err)
					require.GreaterOrEqual(t, f.memory.Position().Compare(last), 0, "%s", order)
				}
				rec.check(t, f, string(order))
			} else {
				read[actor] = rec.entries[rec.stands(t, f):landed]
			}
		}
		f.memory.Close()
	}
	play(nil, map[byte]int{'w': 3, 'o': 4, 'f': 4})
	require.Equal(t, 11550, orders)
}

func TestAReaderThatMissedAnEntryDropsTheMemoryUnlessTheOtherBroughtIt(t *testing.T) {
	t.Parallel()
	rec := record(t)
	whole, trimmed := rec.entries[1:3], rec.entries[2:4]

	f := rec.start(t)
	rec.c.take(f, whole)
	rec.c.take(f, trimmed)
	require.False(t, f.dropped.Load())
	require.Equal(t, 4, rec.stands(t, f))
	rec.check(t, f, "whole, trimmed")

	f = rec.start(t)
	rec.c.take(f, trimmed)
	require.True(t, f.dropped.Load())
	rec.c.take(f, whole)
	require.Nil(t, f.memory.Head(), "what was dropped stays so")
}

// An own write reads the log by itself: no follower is there to do it.
func TestAnOwnWriteReachesTheEndOfTheLogWithoutTheFollower(t *testing.T) {
	t.Parallel()
	rec := record(t)
	f := rec.start(t)
	f.settle(context.Background())
	require.Zero(t, f.behind.Load())
	require.Equal(t, 4, rec.stands(t, f))
	rec.check(t, f, "settled")

	t.Run("of a log that was lost", func(t *testing.T) {
		require.NoError(t, rec.c.rdb.FlushAll(t.Context()).Err())
		f.settle(context.Background())
		require.True(t, f.dropped.Load())
	})
	t.Run("of a log that was cut", func(t *testing.T) {
		rec := record(t)
		f := rec.start(t)
		require.NoError(t, rec.c.rdb.XTrimMaxLen(t.Context(), f.keys.Log(), 1).Err())
		f.settle(context.Background())
		require.True(t, f.dropped.Load())
	})
}
