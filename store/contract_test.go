package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestReportedChainMatchesUpToTheFirstBlockNotHeld(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		seen := w.now() - 1000
		w.holds("a", vllm, seen, "b0", "b1", "b2")
		w.holds("b", vllm, seen, "b0", "b2")
		got, ev := w.match(vllm, "b0", "b1", "b2", "b3")
		require.Equal(t, map[string]int{"a": 3, "b": 1}, got)
		for _, r := range ev.Runs {
			require.Equal(t, seen, r.SeenMS)
			require.Equal(t, ranking.TierT1, r.Tier)
			require.EqualValues(t, 16*r.Blocks, r.Tokens)
		}
		require.Equal(t, 4, ev.Asked)
		require.Equal(t, 4, ev.Walked)
		w.recount()
		w.everyKeyExpires(store.DefaultKeyTTL)
	})
}

func TestExactQueryGivesEachHoldersOwnCount(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i, tier := range []ranking.Tier{ranking.TierT1, ranking.TierT3, ranking.TierUnknown} {
			r := report(fmt.Sprint("r", i), vllm, 0, "whole")
			r.Entries[0].Tokens, r.Entries[0].Tier = int32(1000*(i+1)), tier
			require.NoError(t, w.Report(ctx, r))
		}
		q := query(vllm, "whole")
		q.Exact, q.Tokens = true, nil
		ev := new(ranking.Evidence)
		require.NoError(t, w.Match(ctx, q, ev))
		require.Len(t, ev.Runs, 3)
		for _, r := range ev.Runs {
			require.EqualValues(t, 1000*(r.Replica+1), r.Tokens)
			require.Equal(t, []ranking.Tier{ranking.TierT1, ranking.TierT3, ranking.TierUnknown}[r.Replica], r.Tier)
		}
	})
}

func TestReportAgainOverwritesEvenWithAnOlderTime(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		now := w.now()
		w.holds("a", vllm, now-1000, "b0")
		w.holds("b", vllm, now-1000, "b0")
		r := report("a", vllm, now-60_000, "b0")
		r.Entries[0].Tier = ranking.TierT2
		require.NoError(t, w.Report(ctx, r))
		_, ev := w.match(vllm, "b0")
		require.Len(t, ev.Runs, 2)
		for _, run := range ev.Runs {
			if ev.Serving[run.Replica].ID == "a" {
				require.Equal(t, now-60_000, run.SeenMS)
				require.Equal(t, ranking.TierT2, run.Tier)
			}
		}
		w.recount()
	})
}

func TestLastSeenIsCappedAtNowAndZeroIsNow(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		before := w.now()
		w.holds("future", vllm, before+3_600_000, "b0")
		w.holds("now", vllm, 0, "b0")
		_, ev := w.match(vllm, "b0")
		require.Len(t, ev.Runs, 2)
		for _, r := range ev.Runs {
			require.GreaterOrEqual(t, r.SeenMS, before)
			require.LessOrEqual(t, r.SeenMS, ev.NowMS)
		}
		w.holds("old", vllm, 12345, "b1")
		v, err := store.DecodeHolds(nil, w.rdb.HGet(ctx, blocksKey(vllm), "b1").Val())
		require.NoError(t, err)
		require.Equal(t, store.EpochMS, v[0].SeenMS)
	})
}

func TestHashGivenTwiceCountsOnceAndTheLastWins(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("a", vllm, 0, "x", "y", "x", "x")
		w.holds("a", vllm, 0, "x", "x")
		w.recount()
		v, err := store.DecodeHolds(nil, w.rdb.HGet(ctx, blocksKey(vllm), "x").Val())
		require.NoError(t, err)
		require.Len(t, v, 1)
		require.EqualValues(t, 32, v[0].Tokens)
	})
}

func TestRetiredNumberIsInvisibleAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("a", vllm, 0, "b0", "b1")
		w.holds("a", ranking.Space{Scheme: "sglang", Adapter: "x"}, 0, "b0")
		w.holds("b", vllm, 0, "b0")
		require.NoError(t, w.Report(ctx, &ranking.Report{Scope: scope, Replica: "a", Stats: &ranking.Stats{HitRate: 0.5}}))
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "a"})

		got, ev := w.match(vllm, "b0", "b1")
		require.Equal(t, map[string]int{"b": 1}, got)
		require.Len(t, ev.Serving, 1)
		require.Empty(t, w.serving("sglang"))
		st, err := w.State(ctx, scope)
		require.NoError(t, err)
		require.Empty(t, st.Replicas)

		w.holds("a", vllm, 0, "b1") // a new generation does not revive the old one's b0
		got, _ = w.match(vllm, "b0", "b1")
		require.Equal(t, map[string]int{"b": 1}, got)
		got, _ = w.match(vllm, "b1")
		require.Equal(t, map[string]int{"a": 1}, got)
		w.recount()
	})
}

func TestDeadRecordsGoWhenTheirBlockIsRewritten(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, id := range []string{"a", "b", "c"} {
			w.holds(id, vllm, 0, "b0")
		}
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "b"})
		require.Len(t, w.rdb.HGet(ctx, blocksKey(vllm), "b0").Val(), 3*store.HoldBytes)
		w.holds("d", vllm, 0, "b0")
		require.Len(t, w.rdb.HGet(ctx, blocksKey(vllm), "b0").Val(), 3*store.HoldBytes)
		got, _ := w.match(vllm, "b0")
		require.Equal(t, map[string]int{"a": 1, "c": 1, "d": 1}, got)
		w.recount()
	})
}

func TestExpiredHoldNeverMatches(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		now := w.now()
		w.holds("fresh", vllm, now-halfHour+60_000, "b0", "b1")
		w.holds("stale", vllm, now-halfHour-1, "b0", "b1")
		w.holds("half", vllm, now-halfHour-1, "b1")
		w.holds("half", vllm, 0, "b0")
		got, ev := w.match(vllm, "b0", "b1")
		require.Equal(t, map[string]int{"fresh": 2, "half": 1}, got)
		require.Len(t, ev.Serving, 3, "a stale hold serves until it is swept")
	})
}

func TestRecordsOlderThanTheKeyTTLGoWhenTheirBlockIsRewritten(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		old := w.now() - (store.DefaultKeyTTL + 2*time.Minute).Milliseconds()
		w.holds("old", vllm, old, "b0", "b1")
		w.holds("new", vllm, 0, "b0")
		w.recount()
		require.Equal(t, []string{"new", "old"}, w.serving("vllm"))
		w.holds("new", vllm, 0, "b1")
		w.recount()
		require.Equal(t, []string{"new"}, w.serving("vllm"))
	})
}

func TestEvictionReachesEveryOfThirtyAdapters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var spaces []ranking.Space
		for i := range 30 {
			for _, scheme := range []string{"vllm", "sglang"} {
				sp := ranking.Space{Scheme: scheme, Adapter: fmt.Sprint("lora-", i)}
				spaces = append(spaces, sp)
				w.holds("a", sp, 0, "b0", "b1")
				w.holds("b", sp, 0, "b0")
			}
		}
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b0"), Adapter: "lora-7"})
		for _, sp := range spaces {
			got, _ := w.match(sp, "b0")
			want := map[string]int{"a": 1, "b": 1}
			if sp.Adapter == "lora-7" {
				delete(want, "a")
			}
			require.Equal(t, want, got, "%+v", sp)
		}
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b0")})
		for _, sp := range spaces {
			got, _ := w.match(sp, "b0")
			require.Equal(t, map[string]int{"b": 1}, got, "%+v", sp)
			got, _ = w.match(sp, "b1")
			require.Equal(t, map[string]int{"a": 1}, got, "%+v", sp)
		}
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "b", Hash: []byte("b0")})
		require.Equal(t, []string{"a"}, w.serving("vllm"))
		w.recount()
	})
}

// A pod that knows the spaces of a moment ago must not leave out one that another
// writer has added since.
func TestEvictionReachesASpaceThatAnotherWriterAdded(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("a", vllm, 0, "b0")
		w.match(vllm, "b0") // this store knows one space now
		other, err := store.Open(ctx, store.Options{Redis: w.rdb})
		require.NoError(t, err)
		lora := ranking.Space{Scheme: "vllm", Adapter: "late"}
		require.NoError(t, other.Report(ctx, report("a", lora, 0, "b0")))
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b0")})
		require.Empty(t, w.serving("vllm"))
		got, _ := w.match(lora, "b0")
		require.Empty(t, got)
		w.recount()
	})
}

func TestEvictionOfWhatIsNotHeldChangesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "nobody", Hash: []byte("b0")})
		require.Zero(t, w.rdb.Exists(ctx, keys().Head()).Val())
		w.holds("a", vllm, 0, "b0")
		entries := w.rdb.XLen(ctx, keys().Log()).Val()
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b1")})
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "b", Hash: []byte("b0")})
		require.Equal(t, entries, w.rdb.XLen(ctx, keys().Log()).Val())
		require.Equal(t, []string{"a"}, w.serving("vllm"))
	})
}

func TestThreeHundredReplicasOnOneBlock(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		want := map[string]int{}
		for i := range 300 {
			id := fmt.Sprintf("replica-%03d", i)
			want[id] = 2
			w.holds(id, vllm, 0, "b0", "b1")
		}
		got, ev := w.match(vllm, "b0", "b1", "b2")
		require.Equal(t, want, got)
		require.Len(t, ev.Serving, 300)
		w.recount()
	})
}

func TestReportOfFiveThousandBlocksInSeveralAdapters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var hashes []string
		for i := range 5000 {
			hashes = append(hashes, fmt.Sprintf("block-%05d", i))
		}
		r := report("a", vllm, 0, hashes...)
		lora := report("a", ranking.Space{Scheme: "vllm", Adapter: "x"}, 0, hashes[:700]...)
		r.Entries = append(lora.Entries, r.Entries...)
		r.Stats = &ranking.Stats{HitRate: 0.25}
		require.NoError(t, w.Report(ctx, r))
		got, ev := w.match(vllm, hashes...)
		require.Equal(t, map[string]int{"a": 5000}, got)
		require.InDelta(t, 0.25, ev.Serving[0].Stats.HitRate, 0)
		require.NotZero(t, ev.Serving[0].StatsAtMS)
		got, _ = w.match(ranking.Space{Scheme: "vllm", Adapter: "x"}, hashes...)
		require.Equal(t, map[string]int{"a": 700}, got)
		st, err := w.State(ctx, scope)
		require.NoError(t, err)
		require.EqualValues(t, 5700, st.Prefixes)
		w.recount()
	})
}

func TestTwoWritersOfOneBlockAtTheSameTimeBothStay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		errs := make(chan error, 400)
		for _, id := range []string{"a", "b"} {
			wg.Go(func() {
				for i := range 50 {
					errs <- w.Report(ctx, report(id, vllm, 0, "b0", fmt.Sprint("own-", i)))
					if i%5 == 4 {
						errs <- w.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: id, Hash: []byte("b0")})
					}
				}
				errs <- w.Report(ctx, report(id, vllm, 0, "b0"))
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		got, _ := w.match(vllm, "b0")
		require.Equal(t, map[string]int{"a": 1, "b": 1}, got)
		w.recount()
	})
}

func TestScriptsThatRedisForgotAreSentAgainInOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		flush := func() { require.NoError(t, w.rdb.ScriptFlush(ctx).Err()) }
		flush()
		w.holds("a", vllm, 0, "b0", "b1")
		flush()
		got, _ := w.match(vllm, "b0")
		require.Equal(t, map[string]int{"a": 1}, got)
		// Only the report is unknown now; what follows it must not be done before it.
		flush()
		w.publish(ranking.Event{Kind: ranking.EventEvicted, Replica: "a", Hash: []byte("b1")})
		b := w.Batch(scope, "a")
		b.Report(vllm, 0, report("a", vllm, 0, "b7").Entries)
		b.Evict(vllm, [][]byte{[]byte("b7")})
		_, err := b.Send(ctx)
		require.NoError(t, err)
		got, _ = w.match(vllm, "b7")
		require.Empty(t, got)
		flush()
		w.publish(ranking.Event{Kind: ranking.EventCleared, Replica: "a"})
		require.Empty(t, w.serving("vllm"))
	})
}

func TestNumbersWrapAndSkipThoseInUse(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("first", vllm, 0, "b0") // number 1
		require.NoError(t, w.rdb.HSet(ctx, keys().Head(), "n", 1<<24-2).Err())
		numbers := map[string]uint32{}
		for _, id := range []string{"last", "wrapped"} {
			receipt, err := w.RenewLease(ctx, scope, id, time.Minute)
			require.NoError(t, err)
			numbers[id] = receipt.Number
			w.holds(id, vllm, 0, "b0")
		}
		require.Equal(t, map[string]uint32{"last": 1<<24 - 1, "wrapped": 2}, numbers)
		got, _ := w.match(vllm, "b0")
		require.Equal(t, map[string]int{"first": 1, "last": 1, "wrapped": 1}, got)
		w.recount()
	})
}

func TestUnequalNamesNeverShareAPartition(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		odd := []ranking.Scope{{Tenant: "a", Model: "bc"}, {Tenant: "ab", Model: "c"}, {Tenant: "a}b", Model: "{c"}, {Tenant: "\x00", Model: "é:*"}}
		for i, s := range odd {
			r := report(fmt.Sprint("r", i), vllm, 0, "b0")
			r.Scope = s
			require.NoError(t, w.Report(ctx, r))
		}
		for i, s := range odd {
			q, ev := query(vllm, "b0"), new(ranking.Evidence)
			q.Scope = s
			require.NoError(t, w.Match(ctx, q, ev))
			require.Len(t, ev.Serving, 1)
			require.Equal(t, fmt.Sprint("r", i), ev.Serving[0].ID)
		}
	})
}
