package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// dump is everything that stands under the partition's keys but the log's ids.
func (w *world) dump() map[string]any {
	d := map[string]any{}
	for _, k := range w.rdb.Keys(ctx, "ic1:{"+keys().Tag()+"}*").Val() {
		switch w.rdb.Type(ctx, k).Val() {
		case "hash":
			d[k] = w.rdb.HGetAll(ctx, k).Val()
		case "stream":
			d[k] = w.rdb.XLen(ctx, k).Val()
		default:
			d[k] = w.rdb.Get(ctx, k).Val()
		}
	}
	return d
}

func TestForeignKeyFailsTheWriteByNameAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	for _, key := range []string{keys().Head(), keys().Replicas(), keys().Serving(), keys().Spaces(), keys().Log(), blocksKey(vllm)} {
		t.Run(strings.TrimPrefix(key, "ic1:"), func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.holds("a", vllm, 0, "b0")
				require.NoError(t, w.rdb.Del(ctx, key).Err())
				require.NoError(t, w.rdb.Set(ctx, key, "foreign", time.Hour).Err())
				before := w.dump()
				writes := map[string]error{
					"report": w.Report(ctx, report("b", vllm, 0, "b0")),
					"stats":  w.Report(ctx, &ranking.Report{Scope: scope, Replica: "b", Stats: &ranking.Stats{}}),
					"evict":  w.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: "a", Hash: []byte("b0")}),
					"clear":  w.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "a"}),
				}
				untouched := map[string][]string{ // keys that a script does not read
					keys().Spaces(): {"stats"},
					blocksKey(vllm): {"stats", "clear"},
				}
				if key == keys().Replicas() || key == keys().Spaces() || key == keys().Serving() {
					delete(writes, "evict") // may find that there is nothing to evict
				}
				for what, err := range writes {
					if strings.Contains(strings.Join(untouched[key], " "), what) {
						require.NoError(t, err, what)
						continue
					}
					require.ErrorContains(t, err, key, what)
					require.ErrorContains(t, err, "WRONGTYPE", what)
				}
				if untouched[key] == nil {
					require.Equal(t, before, w.dump())
				}
			})
		})
	}
}

func TestForeignKeyFailsTheLookupByName(t *testing.T) {
	t.Parallel()
	for _, key := range []string{keys().Head(), keys().Replicas(), blocksKey(vllm)} {
		t.Run(strings.TrimPrefix(key, "ic1:"), func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				require.NoError(t, w.rdb.Set(ctx, key, "foreign", time.Hour).Err())
				err := w.Match(ctx, query(vllm, "b0"), new(ranking.Evidence))
				require.ErrorContains(t, err, key)
				require.ErrorContains(t, err, "WRONGTYPE")
			})
		})
	}
}

func TestUnreadableValuesCostTheirHintsAndAreTold(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("a", vllm, 0, "b0", "b1")
		w.holds("b", vllm, 0, "b0", "b1")
		require.NoError(t, w.rdb.HSet(ctx, blocksKey(vllm), "b1", "truncated").Err())
		got, _ := w.match(vllm, "b0", "b1")
		require.Equal(t, map[string]int{"a": 1, "b": 1}, got)
		require.Contains(t, <-w.seen.garbage, "hold:")

		k := keys()
		require.NoError(t, w.rdb.HSet(ctx, k.Replicas(), "b", "short").Err())
		require.NoError(t, w.rdb.HSet(ctx, k.Serving(), "odd", "x").Err())
		require.NoError(t, w.rdb.HSet(ctx, k.Spaces(), "odd", "x").Err())
		require.NoError(t, w.rdb.HSet(ctx, k.Head(), "v", "another").Err())
		got, ev := w.match(vllm, "b0")
		require.Equal(t, map[string]int{"a": 1}, got)
		require.Len(t, ev.Serving, 1)
		told := []string{<-w.seen.garbage, <-w.seen.garbage, <-w.seen.garbage}
		for _, what := range []string{"replica", "count", "space"} {
			require.Contains(t, strings.Join(told, "\n"), what+": ")
		}
	})
}

func TestAWriteReplacesUnreadableValues(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, w *world) {
		w.holds("a", vllm, 0, "b0")
		require.NoError(t, w.rdb.HSet(ctx, blocksKey(vllm), "b1", "truncated").Err())
		require.NoError(t, w.rdb.HSet(ctx, keys().Replicas(), "b", "short").Err())
		w.holds("b", vllm, 0, "b0", "b1")
		require.Contains(t, <-w.seen.garbage, "2 unreadable values were replaced")
		got, _ := w.match(vllm, "b0", "b1")
		require.Equal(t, map[string]int{"a": 1, "b": 2}, got)
		w.recount()
	})
}

func TestAReportThatDoesNotFitTheScriptIsRefusedWhole(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, w *world) {
		err := w.Report(ctx, &ranking.Report{Scope: scope, Replica: "a", Scheme: "vllm",
			Entries: []ranking.Entry{{Hash: []byte(strings.Repeat("x", 256))}}})
		require.ErrorContains(t, err, "hash")
		require.Zero(t, w.rdb.Exists(ctx, keys().Head(), blocksKey(vllm)).Val())
	})
}

func TestOneShardThatIsAwayCostsItsOwnReplicas(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: rig.Standalone(t).Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	f := &faults{garbage: make(chan string, 10)}
	s, err := store.Open(ctx, store.Options{Redis: rdb, Shards: 4, Observer: f})
	require.NoError(t, err)
	want := map[string]int{}
	for i := range 40 {
		id := fmt.Sprint("replica-", i)
		require.NoError(t, s.Report(ctx, report(id, vllm, 0, "b0", "b1")))
		want[id] = 2
	}
	ask := func() (map[string]int, *ranking.Evidence) {
		ev := new(ranking.Evidence)
		require.NoError(t, s.Match(ctx, query(vllm, "b0", "b1"), ev))
		got := map[string]int{}
		for i, r := range ev.Runs {
			got[ev.Serving[r.Replica].ID] = r.Blocks
			_ = i
		}
		return got, ev
	}
	got, ev := ask()
	require.Equal(t, want, got)
	for i := 1; i < len(ev.Serving); i++ {
		require.Less(t, ev.Serving[i-1].ID, ev.Serving[i].ID)
	}
	st, err := s.State(ctx, scope)
	require.NoError(t, err)
	require.EqualValues(t, 2, st.Prefixes, "a hash in four shards is one prefix")

	require.NoError(t, rdb.Set(ctx, store.KeysOf(scope, 2).Head(), "foreign", time.Hour).Err())
	for id := range want {
		if store.ShardOf(id, 4) == 2 {
			delete(want, id)
		}
	}
	require.False(t, ev.Partial)
	got, ev = ask()
	require.Equal(t, want, got)
	require.True(t, ev.Partial, "without a shard there is no telling who else holds it")
}

func TestAShardThatHangsIsNotWaitedForAndDoesNotReadTheCallersBuffers(t *testing.T) {
	t.Parallel()
	const shards = 6
	set := rig.Cluster(t, 3)
	rdb, err := store.Dial(store.DialOptions{URL: set.URL()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := store.Open(ctx, store.Options{Redis: rdb, Shards: shards})
	require.NoError(t, err)
	hung := set.Owner(store.KeysOf(scope, 0).Head())
	want := map[string]int{}
	for i := range 40 {
		id := fmt.Sprint("replica-", i)
		require.NoError(t, s.Report(ctx, report(id, vllm, 0, "b0", "b1")))
		if set.Owner(store.KeysOf(scope, store.ShardOf(id, shards)).Head()) != hung {
			want[id] = 2
		}
	}
	require.NotEmpty(t, want)
	hung.Pause()
	defer hung.Resume()

	q, ev := query(vllm, "b0", "b1"), new(ranking.Evidence)
	limited, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	require.NoError(t, s.Match(limited, q, ev))
	require.NoError(t, limited.Err(), "there is time left to rank")
	require.True(t, ev.Partial)
	got := map[string]int{}
	for _, r := range ev.Runs {
		got[ev.Serving[r.Replica].ID] = r.Blocks
	}
	require.Equal(t, want, got)
	// As the pod does with its next request.
	for _, h := range q.Hashes {
		clear(h)
	}
}

func TestALookupWithoutRedisFails(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	w := newWorld(t, m.Addr(), 2, store.Options{})
	m.Close()
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	require.Error(t, w.Match(limited, query(vllm, "b0"), new(ranking.Evidence)))
	require.Error(t, w.Report(limited, report("a", vllm, 0, "b0")))
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for what, o := range map[string]store.Options{
		"nil":       {},
		"shards":    {Redis: rdb, Shards: -1},
		"too short": {Redis: rdb, KeyTTL: time.Millisecond},
		"negative":  {Redis: rdb, LogLength: -1},
	} {
		_, err := store.New(o)
		require.ErrorContains(t, err, what)
	}
}
