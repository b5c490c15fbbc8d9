package store_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

var (
	ctx   = context.Background()
	scope = ranking.Scope{Tenant: "acme", Model: "llama"}
	vllm  = ranking.Space{Scheme: "vllm"}
)

const halfHour = int64(30 * 60 * 1000)

// world is an empty Redis and a Store on it.
type world struct {
	*store.Store
	t    testing.TB
	rdb  *redis.Client
	seen *faults
}

// faults is an Observer that remembers.
type faults struct{ garbage chan string }

func (f *faults) Garbage(what string, err error) {
	select {
	case f.garbage <- fmt.Sprintf("%s: %v", what, err):
	default:
	}
}
func (f *faults) ShardFailed(int, error) {}

// everywhere runs a test of the contract on a real Redis and on miniredis, read as
// RESP2 and as RESP3.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("redis/resp%d", protocol), func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, rig.Standalone(t).Addr(), protocol, store.Options{}))
		})
		t.Run(fmt.Sprintf("miniredis/resp%d", protocol), func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, miniredis.RunT(t).Addr(), protocol, store.Options{}))
		})
	}
}

func newWorld(t testing.TB, addr string, protocol int, o store.Options) *world {
	rdb := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	f := &faults{garbage: make(chan string, 100)}
	o.Redis, o.Observer = rdb, f
	s, err := store.Open(ctx, o)
	require.NoError(t, err)
	return &world{Store: s, t: t, rdb: rdb, seen: f}
}

func (w *world) now() int64 {
	now, err := w.rdb.Time(ctx).Result()
	require.NoError(w.t, err)
	return now.UnixMilli()
}

// holds reports a chain of blocks of 16 tokens each.
func (w *world) holds(replica string, sp ranking.Space, seenMS int64, hashes ...string) {
	w.t.Helper()
	require.NoError(w.t, w.Report(ctx, report(replica, sp, seenMS, hashes...)))
}

func report(replica string, sp ranking.Space, seenMS int64, hashes ...string) *ranking.Report {
	r := &ranking.Report{Scope: scope, Replica: replica, Scheme: sp.Scheme, SeenMS: seenMS}
	for i, h := range hashes {
		r.Entries = append(r.Entries, ranking.Entry{Adapter: sp.Adapter, Hash: []byte(h), Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1})
	}
	return r
}

func (w *world) publish(e ranking.Event) {
	w.t.Helper()
	e.Scope = scope
	require.NoError(w.t, w.Publish(ctx, &e))
}

// match asks for a chain and returns the matched blocks of each replica, and all that was found.
func (w *world) match(sp ranking.Space, hashes ...string) (map[string]int, *ranking.Evidence) {
	w.t.Helper()
	ev := new(ranking.Evidence)
	require.NoError(w.t, w.Match(ctx, query(sp, hashes...), ev))
	got := map[string]int{}
	for _, r := range ev.Runs {
		got[ev.Serving[r.Replica].ID] = r.Blocks
	}
	return got, ev
}

func query(sp ranking.Space, hashes ...string) *ranking.Query {
	q := &ranking.Query{Scope: scope, Space: sp, TTLMS: halfHour}
	for _, h := range hashes {
		q.Hashes = append(q.Hashes, []byte(h))
		q.Tokens = append(q.Tokens, 16)
	}
	return q
}

// serving lists who serves a scheme.
func (w *world) serving(scheme string) []string {
	_, ev := w.match(ranking.Space{Scheme: scheme}, "no such block")
	ids := []string{}
	for _, r := range ev.Serving {
		ids = append(ids, r.ID)
	}
	return ids
}

// keys of the one partition of scope.
func keys() store.Keys { return store.KeysOf(scope, 0) }

func blocksKey(sp ranking.Space) string { return keys().Blocks(store.SpaceSuffix(sp)) }

// recount compares the serving counts with the records.
func (w *world) recount() {
	w.t.Helper()
	requireRecount(w.t, w.rdb, keys())
}

func requireRecount(t require.TestingT, rdb *redis.Client, k store.Keys) {
	counts := rdb.HGetAll(ctx, k.Serving()).Val()
	tally := map[string]int{}
	for field, index := range rdb.HGetAll(ctx, k.Spaces()).Val() {
		sp, err := store.ParseSpaceField(field)
		require.NoError(t, err)
		scheme, err := strconv.ParseUint(index, 10, 16)
		require.NoError(t, err)
		for hash, v := range rdb.HGetAll(ctx, k.Blocks(store.SpaceSuffix(sp))).Val() {
			holds, err := store.DecodeHolds(nil, v)
			require.NoError(t, err)
			require.NotEmpty(t, holds)
			once := map[uint32]bool{}
			for _, h := range holds {
				require.False(t, once[h.Replica], "number %d stands twice in block %q", h.Replica, hash)
				once[h.Replica] = true
				if f := store.CountField(uint16(scheme), h.Replica); counts[f] != "" {
					tally[f]++
				}
			}
		}
	}
	actual := map[string]string{}
	for f, n := range tally {
		actual[f] = strconv.Itoa(n)
	}
	require.Equal(t, actual, counts)
}

// everyKeyExpires checks that no key of the index was left without a life of at least ttl.
func (w *world) everyKeyExpires(ttl time.Duration) {
	w.t.Helper()
	for _, k := range w.rdb.Keys(ctx, "*").Val() {
		left := w.rdb.PTTL(ctx, k).Val()
		require.GreaterOrEqual(w.t, left, ttl, "key %s", k)
	}
}
