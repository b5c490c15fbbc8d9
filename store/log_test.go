package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// entries reads the whole log and checks that each entry names the one before.
func (w *world) entries() []store.LogEntry {
	w.t.Helper()
	var list []store.LogEntry
	prev := ""
	for _, m := range w.rdb.XRange(ctx, keys().Log(), "-", "+").Val() {
		e, err := store.DecodeLog([]byte(m.Values[store.LogField].(string)))
		require.NoError(w.t, err)
		require.Equal(w.t, prev, e.Prev)
		prev = m.ID
		list = append(list, e)
	}
	head := w.rdb.HGet(ctx, keys().Head(), "l").Val()
	require.Equal(w.t, prev, head)
	return list
}

func TestLogTellsEveryChangeInOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		now := w.now()
		lora := ranking.Space{Scheme: "vllm", Adapter: "x"}
		w.holds("a", vllm, now-1000, "b0", "b1")
		w.holds("a", vllm, now-500, "b0")
		w.holds("a", lora, now-500, "b0")
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b0")})
		require.NoError(t, w.Report(ctx, &ranking.Report{Scope: scope, Replica: "a", SeenMS: now - 100, Stats: &ranking.Stats{Pressure: 0.5}}))
		w.publish(ranking.Event{Kind: ranking.EventAlive, Replica: "a"})
		_, err := w.RenewLease(ctx, scope, "a", time.Hour)
		require.NoError(t, err)
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "a"})

		e := w.entries()
		require.Len(t, e, 8)
		ops := ""
		for _, x := range e {
			ops += string(rune(x.Op))
			if x.Op != store.OpSweep {
				require.EqualValues(t, 1, x.Number)
			}
		}
		require.Equal(t, "RRRESSSC", ops)

		require.True(t, e[0].HeadChanged, "a new name")
		require.False(t, e[0].Carried)
		require.Equal(t, store.SpaceSuffix(vllm), e[0].Space)
		require.Equal(t, now-1000, e[0].SeenMS)
		require.Equal(t, []store.LoggedHold{{Hash: []byte("b0"), Tier: ranking.TierT1, Tokens: 16}, {Hash: []byte("b1"), Tier: ranking.TierT1, Tokens: 32}}, e[0].Holds)
		require.False(t, e[1].HeadChanged)
		require.True(t, e[2].HeadChanged, "a new space")
		require.ElementsMatch(t, []string{store.SpaceSuffix(vllm), store.SpaceSuffix(lora)}, e[3].Spaces)
		require.Equal(t, [][]byte{[]byte("b0")}, e[3].Hashes)
		require.False(t, e[3].HeadChanged)
		require.True(t, e[4].HeadChanged && e[4].Carried)
		require.Equal(t, "a", e[4].Replica)
		require.InDelta(t, 0.5, e[4].Record.Stats.Pressure, 0)
		require.False(t, e[5].HeadChanged, "an alive time is not read by lookups")
		require.True(t, e[6].Carried)
		require.NotZero(t, e[6].Record.LeaseMS)
		require.True(t, e[7].HeadChanged && e[7].Carried)
		require.Equal(t, "a", e[7].Replica)
	})
}

// A follower that applies what entries carry has the head that Redis would send.
func TestHeadFollowsTheLog(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		p := store.Partition{Scope: scope}
		w.holds("a", vllm, 0, "b0")
		w.holds("b", vllm, 0, "b0")
		v, err := w.Read(ctx, p, vllm, nil)
		require.NoError(t, err)
		head, at := v.Head, v.LogID
		require.NoError(t, w.Report(ctx, &ranking.Report{Scope: scope, Replica: "b", Stats: &ranking.Stats{Pressure: 0.5}}))
		_, err = w.RenewLease(ctx, scope, "b", time.Hour)
		require.NoError(t, err)
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "a"})
		for _, m := range w.rdb.XRange(ctx, keys().Log(), "("+at, "+").Val() {
			e, err := store.DecodeLog([]byte(m.Values[store.LogField].(string)))
			require.NoError(t, err)
			require.Equal(t, at, e.Prev)
			at = m.ID
			head = head.Apply(m.ID, &e)
			require.NotNil(t, head)
		}
		fresh, err := store.Open(ctx, store.Options{Redis: w.rdb})
		require.NoError(t, err)
		v, err = fresh.Read(ctx, p, vllm, nil)
		require.NoError(t, err)
		require.Equal(t, v.LogID, at)
		require.Equal(t, v.Head.ID, head.ID)
		require.Equal(t, v.Head.Dirty, head.Dirty)
		require.Equal(t, v.Head.Serving("vllm", v.NowMS).Replicas, head.Serving("vllm", v.NowMS).Replicas)

		w.holds("c", vllm, 0, "b0")
		list := w.entries()
		require.Nil(t, head.Apply("next", &list[len(list)-1]), "a new name is not carried")
	})
}

func TestLogIsBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		s, err := store.Open(ctx, store.Options{Redis: w.rdb, LogLength: 10})
		require.NoError(t, err)
		for range 400 {
			require.NoError(t, s.Report(ctx, report("a", vllm, 0, "b0")))
		}
		require.Less(t, w.rdb.XLen(ctx, keys().Log()).Val(), int64(250))
	})
}
