package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/store/embedded"
)

// upkeep is what the tests of catalog, layout and sweeps share: a Redis, and a Store on it.
type upkeep struct {
	t   *testing.T
	ctx context.Context
	rdb redis.UniversalClient
	obs *listener
	*store.Store
}

// listener is an Observer that remembers.
type listener struct {
	mu      sync.Mutex
	evicted map[string]int64 // tenant/reason
	swept   int
	behind  int
	entries map[string]int64
	garbage []string
}

func (l *listener) Garbage(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.garbage = append(l.garbage, what+": "+err.Error())
}

func (l *listener) ShardFailed(int, error) {}

func (l *listener) Evicted(tenant, reason string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.evicted[tenant+"/"+reason] += n
}

func (l *listener) Swept(time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swept++
}

func (l *listener) Behind(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind = n
}

func (l *listener) Entries(m map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = m
}

func (l *listener) of(tenantReason string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.evicted[tenantReason]
}

// onEveryRedis runs cases on the embedded server, on a real one and on a Cluster,
// each case on an empty one.
func onEveryRedis(t *testing.T, cases map[string]func(t *testing.T, u *upkeep)) {
	kinds := map[string]func(t *testing.T) (url string, flush func() error){
		"embedded": func(t *testing.T) (string, func() error) {
			s, err := embedded.Start(embedded.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			c := redis.NewClient(&redis.Options{Addr: s.Addr()})
			t.Cleanup(func() { _ = c.Close() })
			return s.URL(), func() error { return c.FlushAll(context.Background()).Err() }
		},
		"redis": func(t *testing.T) (string, func() error) {
			s := rig.Standalone(t)
			return s.URL(), func() error { return s.Client().FlushAll(context.Background()).Err() }
		},
		"cluster": func(t *testing.T) (string, func() error) {
			s := rig.Cluster(t, 3)
			c := s.Client()
			return s.URL(), func() error {
				return c.ForEachMaster(context.Background(), func(ctx context.Context, m *redis.Client) error {
					return m.FlushAll(ctx).Err()
				})
			}
		},
	}
	for kind, start := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url, flush := start(t)
			for name, run := range cases {
				t.Run(name, func(t *testing.T) {
					require.NoError(t, flush())
					run(t, newUpkeep(t, url, store.Options{}))
				})
			}
		})
	}
}

func newUpkeep(t *testing.T, url string, o store.Options) *upkeep {
	t.Helper()
	rdb, err := store.Dial(store.DialOptions{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	u := &upkeep{t: t, ctx: context.Background(), rdb: rdb, obs: &listener{evicted: map[string]int64{}}}
	o.Redis, o.Observer = rdb, u.obs
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	u.Store, err = store.Open(u.ctx, o)
	require.NoError(t, err)
	return u
}

// eventually waits for what only time brings. The condition runs on the test's own
// goroutine, so it may use require.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	rig.Eventually(t, 2*time.Minute, "the condition", func() error {
		if !holds() {
			return errors.New("does not hold")
		}
		return nil
	})
}

var here = ranking.Scope{Tenant: "acme", Model: "llama"}

func part(s ranking.Scope) store.Partition { return store.Partition{Scope: s} }

// hashes are n distinct hashes.
func hashes(from, n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, "block-%06d", from+i)
	}
	return list
}

// holds reports that the replica has held the hashes since ago.
func (u *upkeep) holds(s ranking.Scope, replica, scheme string, ago time.Duration, list [][]byte) {
	u.t.Helper()
	r := ranking.Report{Scope: s, Replica: replica, Scheme: scheme}
	if ago != 0 {
		r.SeenMS = time.Now().Add(-ago).UnixMilli()
	}
	for _, h := range list {
		r.Entries = append(r.Entries, ranking.Entry{Hash: h, Tokens: 16, Tier: ranking.TierT1})
	}
	require.NoError(u.t, u.Report(u.ctx, &r))
}

func (u *upkeep) event(kind ranking.EventKind, s ranking.Scope, replica string, hash []byte) {
	u.t.Helper()
	require.NoError(u.t, u.Publish(u.ctx, &ranking.Event{Kind: kind, Scope: s, Replica: replica, Hash: hash}))
}

// sweep makes one full pass as a sweeper would, and checks the counts.
func (u *upkeep) sweep(s ranking.Scope, ttl time.Duration) store.SweepResult {
	u.t.Helper()
	r, err := u.SweepNow(u.ctx, part(s), ttl)
	require.NoError(u.t, err)
	require.True(u.t, r.Full)
	u.countsAreTrue(s)
	return r
}

// contents is what stands in one partition, read key by key.
type contents struct {
	Counts  map[string]string   // of the serving hash, by scheme index and number
	Recount map[string]string   // what they should be
	Dead    int                 // records without a count
	Fields  map[string][]string // space field → hashes, unsorted
}

func (u *upkeep) look(s ranking.Scope) contents {
	u.t.Helper()
	k := part(s).Keys()
	c := contents{Counts: map[string]string{}, Recount: map[string]string{}, Fields: map[string][]string{}}
	serving, err := u.rdb.HGetAll(u.ctx, k.Serving()).Result()
	require.NoError(u.t, err)
	name := func(scheme, number uint32) string { return fmt.Sprintf("%d/%d", scheme, number) }
	for f, n := range serving {
		scheme, number, err := store.ParseCountField(f)
		require.NoError(u.t, err)
		c.Counts[name(uint32(scheme), number)] = n
	}
	spaces, err := u.rdb.HGetAll(u.ctx, k.Spaces()).Result()
	require.NoError(u.t, err)
	tally := map[string]int{}
	for field, index := range spaces {
		sp, err := store.ParseSpaceField(field)
		require.NoError(u.t, err)
		scheme, err := strconv.Atoi(index)
		require.NoError(u.t, err)
		blocks, err := u.rdb.HGetAll(u.ctx, k.Blocks(store.SpaceSuffix(sp))).Result()
		require.NoError(u.t, err)
		for hash, v := range blocks {
			holds, err := store.DecodeHolds(nil, v)
			require.NoError(u.t, err)
			require.NotEmpty(u.t, holds)
			c.Fields[field] = append(c.Fields[field], hash)
			for _, h := range holds {
				if n := name(uint32(scheme), h.Replica); c.Counts[n] != "" {
					tally[n]++
				} else {
					c.Dead++
				}
			}
		}
	}
	for n, count := range tally {
		c.Recount[n] = strconv.Itoa(count)
	}
	return c
}

// countsAreTrue: each count is what a recount of the records gives, and none is 0.
func (u *upkeep) countsAreTrue(s ranking.Scope) contents {
	u.t.Helper()
	c := u.look(s)
	require.Empty(u.t, cmp.Diff(c.Recount, c.Counts), "recount (-) and counts (+)")
	return c
}

// catalogIsTrue: the catalog names the partition as holding something, or as one to
// sweep, exactly if it is.
func (u *upkeep) catalogIsTrue(s ranking.Scope) {
	u.t.Helper()
	k := part(s).Keys()
	rows, err := u.rdb.Exists(u.ctx, k.Serving(), k.Replicas(), k.Spaces()).Result()
	require.NoError(u.t, err)
	err = u.rdb.ZScore(u.ctx, store.CatalogPartitionsKey, store.PartitionMember(part(s))).Err()
	if rows > 0 {
		require.NoError(u.t, err, "%v has something to sweep, and the catalog does not say so", s)
	} else {
		require.Equal(u.t, redis.Nil, err, "%v has nothing, and the catalog says it does", s)
	}
	has, err := u.rdb.Exists(u.ctx, k.Serving()).Result()
	require.NoError(u.t, err)
	err = u.rdb.ZScore(u.ctx, store.CatalogTenantKey(s.Tenant), store.CatalogMember(s.Model, 0)).Err()
	if has == 1 {
		require.NoError(u.t, err, "%v holds something, and the catalog does not say so", s)
		require.NoError(u.t, u.rdb.ZScore(u.ctx, store.CatalogTenantsKey, s.Tenant).Err())
	} else {
		require.Equal(u.t, redis.Nil, err, "%v holds nothing, and the catalog says it does", s)
	}
}

// census asks as a lookup that found nobody serving.
func (u *upkeep) census(s ranking.Scope, scheme string) ranking.Census {
	u.t.Helper()
	var ev ranking.Evidence
	require.NoError(u.t, u.Match(u.ctx, &ranking.Query{
		Scope: s, Space: ranking.Space{Scheme: scheme}, Hashes: [][]byte{[]byte("no such block")}, Exact: true, TTLMS: 60_000,
	}, &ev))
	return ev.Census
}
