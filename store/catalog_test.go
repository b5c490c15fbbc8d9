package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/store/embedded"
)

func TestCatalog(t *testing.T) {
	onEveryRedis(t, map[string]func(*testing.T, *upkeep){
		"a census knows index, tenant and model apart":      censusLevels,
		"entries that expired do not count":                 expiredEntries,
		"a write that could not file is filed by a later":   filedLater,
		"an entry that was lost comes back with the writes": lostEntry,
		"entries are counted by model":                      entriesByModel,
		"odd names are kept apart":                          oddNames,
	})
}

func censusLevels(t *testing.T, u *upkeep) {
	require.Equal(t, ranking.CensusIndexEmpty, u.census(here, "v"))
	u.holds(ranking.Scope{Tenant: "b", Model: "llama"}, "a", "v", 0, hashes(0, 1))
	require.Equal(t, ranking.CensusTenantEmpty, u.census(here, "v"))
	u.holds(ranking.Scope{Tenant: "acme", Model: "other"}, "a", "v", 0, hashes(0, 1))
	require.Equal(t, ranking.CensusModelEmpty, u.census(here, "v"))
	u.holds(here, "a", "v", 0, hashes(0, 1))
	require.Equal(t, ranking.CensusSchemeEmpty, u.census(here, "w"))
	u.event(ranking.EventEvicted, here, "a", hashes(0, 1)[0])
	require.Equal(t, ranking.CensusModelEmpty, u.census(here, "w"))
	require.NoError(t, u.Report(u.ctx, &ranking.Report{Scope: here, Replica: "a", Stats: &ranking.Stats{}}))
	require.Equal(t, ranking.CensusModelEmpty, u.census(here, "w"), "stats are no holds")
}

func expiredEntries(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 1))
	past := float64(time.Now().Add(-time.Minute).UnixMilli())
	require.NoError(t, u.rdb.ZAdd(u.ctx, store.CatalogTenantKey("acme"), redis.Z{Score: past, Member: store.CatalogMember("llama", 0)}).Err())
	require.Equal(t, ranking.CensusTenantEmpty, u.census(ranking.Scope{Tenant: "acme", Model: "x"}, "v"))
	require.NoError(t, u.rdb.ZAdd(u.ctx, store.CatalogTenantsKey, redis.Z{Score: past, Member: "acme"}).Err())
	require.Equal(t, ranking.CensusIndexEmpty, u.census(ranking.Scope{Tenant: "acme", Model: "x"}, "v"))
	u.sweep(here, ttl)
	require.Equal(t, ranking.CensusModelEmpty, u.census(ranking.Scope{Tenant: "acme", Model: "x"}, "v"), "a sweep renews what is true")

	// A partition whose keys Redis let expire is struck out by the next sweeper.
	k := part(here).Keys()
	require.NoError(t, u.rdb.Del(u.ctx, k.Head(), k.Replicas(), k.Serving(), k.Spaces(), k.Log(),
		k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "v"}))).Err())
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Tick(u.ctx))
	require.Equal(t, ranking.CensusIndexEmpty, u.census(here, "v"))
	require.Zero(t, u.rdb.Exists(u.ctx, k.Head()).Val(), "and nothing is left behind")
}

// failing makes the catalog's script calls fail while it is on.
type failing struct {
	redis.Hook
	on atomic.Bool
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			if f.on.Load() && strings.Contains(fmt.Sprint(c.Args()...), "{catalog}") {
				c.SetErr(net.ErrClosed)
				return net.ErrClosed
			}
		}
		return next(ctx, cmds)
	}
}

func filedLater(t *testing.T, u *upkeep) {
	f := &failing{}
	u.rdb.AddHook(f)
	f.on.Store(true)
	report := &ranking.Report{Scope: here, Replica: "a", Scheme: "v", Entries: []ranking.Entry{{Hash: []byte("x"), Tokens: 1}}}
	require.ErrorIs(t, u.Report(u.ctx, report), net.ErrClosed, "the producer must keep the report")
	f.on.Store(false)
	require.NoError(t, u.Report(u.ctx, report))
	u.catalogIsTrue(here)

	f.on.Store(true)
	require.Error(t, u.Publish(u.ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: here, Replica: "a"}))
	f.on.Store(false)
	w, err := store.NewSweeper(u.Store, store.SweeperOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Tick(u.ctx))
	u.catalogIsTrue(here)
}

func lostEntry(t *testing.T, u *upkeep) {
	u.holds(here, "a", "v", 0, hashes(0, 1))
	require.NoError(t, u.rdb.Del(u.ctx, store.CatalogTenantsKey, store.CatalogTenantKey("acme"), store.CatalogPartitionsKey).Err())
	// Another process, or this one a minute later.
	u2, err := store.Open(u.ctx, store.Options{Redis: u.rdb})
	require.NoError(t, err)
	require.NoError(t, u2.Report(u.ctx, &ranking.Report{Scope: here, Replica: "a", Scheme: "v", Entries: []ranking.Entry{{Hash: []byte("x"), Tokens: 1}}}))
	u.catalogIsTrue(here)
}

func entriesByModel(t *testing.T, u *upkeep) {
	for i := range 300 {
		u.holds(ranking.Scope{Tenant: fmt.Sprint("t", i), Model: fmt.Sprint("m", i%2)}, "a", "v", 0, hashes(0, 2))
	}
	u.holds(ranking.Scope{Tenant: "t0", Model: "m0"}, "b", "w", 0, hashes(0, 5))
	got, err := u.Entries(u.ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"m0": 305, "m1": 300}, got)
}

func oddNames(t *testing.T, u *upkeep) {
	names := []string{"a", "a\x00", "{a}", "a.0", "}", "\xff\xfe", "ic1:{catalog}:tenants", strings.Repeat("x", 512)}
	for _, tenant := range names {
		for _, model := range names {
			u.holds(ranking.Scope{Tenant: tenant, Model: model}, "r", "v", 0, hashes(0, 1))
		}
	}
	list, err := u.Partitions(u.ctx)
	require.NoError(t, err)
	require.Len(t, list, len(names)*len(names))
	for _, p := range list {
		u.catalogIsTrue(p.Scope)
		u.event(ranking.EventCleared, p.Scope, "r", nil)
		u.catalogIsTrue(p.Scope)
	}
	require.Equal(t, ranking.CensusIndexEmpty, u.census(here, "v"))
}

// The catalog and a partition lie in different slots, so a writer changes them in
// two steps, and the steps of two writers may fall in any order. These tests go
// through the orders of all commands that two writers send.
func TestCatalogIsTrueAfterEveryOrderOfTwoWriters(t *testing.T) {
	cases := map[string]struct {
		before  func(u *upkeep, s ranking.Scope)
		writers []writer
	}{
		"filled from nothing while it is emptied": {
			before:  func(*upkeep, ranking.Scope) {},
			writers: []writer{fills("a"), clears("a")},
		},
		"emptied by a clear while another replica fills it": {
			before:  func(u *upkeep, s ranking.Scope) { u.holds(s, "a", "v", 0, hashes(0, 1)) },
			writers: []writer{clears("a"), fills("b")},
		},
		"emptied by an eviction while another replica fills it": {
			before:  func(u *upkeep, s ranking.Scope) { u.holds(s, "a", "v", 0, hashes(0, 1)) },
			writers: []writer{evicts("a"), fills("b")},
		},
		"emptied while its entry is renewed": {
			before:  func(u *upkeep, s ranking.Scope) { u.holds(s, "a", "v", 0, hashes(0, 1)) },
			writers: []writer{clears("a"), saysStats("b")},
		},
		"swept empty while another replica fills it": {
			before:  func(u *upkeep, s ranking.Scope) { u.holds(s, "a", "v", time.Hour, hashes(0, 1)) },
			writers: []writer{sweeps, fills("b")},
		},
		"emptied twice over": {
			before: func(u *upkeep, s ranking.Scope) {
				u.holds(s, "a", "v", 0, hashes(0, 1))
				u.holds(s, "b", "v", 0, hashes(0, 1))
			},
			writers: []writer{clears("a"), clears("b")},
		},
	}
	server, err := embedded.Start(embedded.Options{})
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			u := newUpkeep(t, server.URL(), store.Options{})
			procs := newProcesses(t, server.URL(), len(c.writers))
			var path []choice
			for orders := 1; ; orders++ {
				s := ranking.Scope{Tenant: t.Name(), Model: fmt.Sprint(orders)}
				c.before(u, s)
				path = procs.interleave(t, s, c.writers, func(options int) int { return take(&path, options) })
				u.catalogIsTrue(s)
				require.NoError(t, u.rdb.FlushAll(u.ctx).Err())
				if path = next(path); path == nil {
					t.Logf("%d orders", orders)
					require.Greater(t, orders, 20)
					return
				}
			}
		})
	}
}

func TestCatalogIsTrueAfterAnyOrderOfManyWriters(t *testing.T) {
	server, err := embedded.Start(embedded.Options{})
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	u := newUpkeep(t, server.URL(), store.Options{})
	procs := newProcesses(t, server.URL(), 4)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		s := ranking.Scope{Tenant: "many", Model: fmt.Sprint(run)}
		if rapid.Bool().Draw(rt, "filled before") {
			u.holds(s, "a", "v", 0, hashes(0, 1))
		}
		writers := rapid.SliceOfN(rapid.SampledFrom([]writer{
			fills("a"), fills("b"), clears("a"), clears("b"), evicts("a"), evicts("b"), sweeps, saysStats("a"),
		}), 2, 4).Draw(rt, "writers")
		procs.interleave(t, s, writers, func(options int) int { return rapid.IntRange(0, options-1).Draw(rt, "next") })
		u.catalogIsTrue(s)
	})
}

// writer is one change that a process makes.
type writer func(ctx context.Context, st *store.Store, s ranking.Scope) error

func fills(replica string) writer {
	return func(ctx context.Context, st *store.Store, s ranking.Scope) error {
		return st.Report(ctx, &ranking.Report{Scope: s, Replica: replica, Scheme: "v", Entries: []ranking.Entry{{Hash: hashes(0, 1)[0], Tokens: 1}}})
	}
}

func saysStats(replica string) writer {
	return func(ctx context.Context, st *store.Store, s ranking.Scope) error {
		return st.Report(ctx, &ranking.Report{Scope: s, Replica: replica, Stats: &ranking.Stats{}})
	}
}

func clears(replica string) writer {
	return func(ctx context.Context, st *store.Store, s ranking.Scope) error {
		return st.Publish(ctx, &ranking.Event{Kind: ranking.EventCleared, Scope: s, Replica: replica})
	}
}

func evicts(replica string) writer {
	return func(ctx context.Context, st *store.Store, s ranking.Scope) error {
		return st.Publish(ctx, &ranking.Event{Kind: ranking.EventEvicted, Scope: s, Replica: replica, Hash: hashes(0, 1)[0]})
	}
}

func sweeps(ctx context.Context, st *store.Store, s ranking.Scope) error {
	_, err := st.SweepNow(ctx, part(s), ttl)
	return err
}

// processes are the clients and Stores of several writers, each as if in a process
// of its own: the catalog's throttle is one Store's memory.
type processes struct {
	stores []*store.Store
	gates  []*gate
}

func newProcesses(t *testing.T, url string, n int) *processes {
	t.Helper()
	p := &processes{}
	for range n {
		rdb, err := store.Dial(store.DialOptions{URL: url, MinIdleConns: -1})
		require.NoError(t, err)
		t.Cleanup(func() { _ = rdb.Close() })
		st, err := store.Open(context.Background(), store.Options{Redis: rdb})
		require.NoError(t, err)
		g := &gate{asks: make(chan bool), pass: make(chan struct{})}
		rdb.AddHook(g)
		p.stores, p.gates = append(p.stores, st), append(p.gates, g)
	}
	return p
}

// interleave lets one writer at a time send one command; pick says which of those
// that still have one. It returns the choices that were made.
func (p *processes) interleave(t *testing.T, s ranking.Scope, writers []writer, pick func(options int) int) []choice {
	t.Helper()
	var taken []choice
	results := make(chan error, len(writers))
	for i, write := range writers {
		go func() {
			err := write(context.Background(), p.stores[i], s)
			p.gates[i].asks <- false
			results <- err
		}()
	}
	var waiting []*gate
	for _, g := range p.gates[:len(writers)] {
		if <-g.asks {
			waiting = append(waiting, g)
		}
	}
	for len(waiting) > 0 {
		n := pick(len(waiting))
		taken = append(taken, choice{n, len(waiting)})
		g := waiting[n]
		g.pass <- struct{}{}
		if !<-g.asks { // the command is done; there is a next one, or there is none
			waiting = without(waiting, g)
		}
	}
	var errs []error
	for range writers {
		errs = append(errs, <-results)
	}
	require.NoError(t, errors.Join(errs...))
	return taken
}

func without(list []*gate, g *gate) []*gate {
	var rest []*gate
	for _, x := range list {
		if x != g {
			rest = append(rest, x)
		}
	}
	return rest
}

// gate holds every command of a client until it is let through.
type gate struct {
	asks chan bool // true: a command waits; false: there will be no more
	pass chan struct{}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.asks <- true
		<-g.pass
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.asks <- true
		<-g.pass
		return next(ctx, cmds)
	}
}

// choice is which of several writers went on, at one point of an order.
type choice struct{ taken, options int }

// take follows the path while it lasts, and then takes the first option each time.
func take(path *[]choice, options int) int {
	if len(*path) == 0 {
		return 0
	}
	n := (*path)[0].taken
	*path = (*path)[1:]
	return min(n, options-1)
}

// next is the path to the next order: the last choice that has an option left, moved on.
func next(path []choice) []choice {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i].taken+1 < path[i].options {
			return append(append([]choice(nil), path[:i]...), choice{path[i].taken + 1, path[i].options})
		}
	}
	return nil
}
