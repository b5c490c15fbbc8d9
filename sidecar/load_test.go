package sidecar_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar"
	"inferencecache.io/lookuptier/sidecar/publisher"
)

// envLoad sets how many requests each engine of the load test runs; more shows a rate worth quoting.
const envLoad = "LOOKUPTIER_LOAD_REQUESTS"

// TestTwentyEnginesAtOnceEndWithoutADifference publishes as fast as it can from 20 engines to 20 sidecars on
// one Redis, and compares all of them block by block. The rates that it logs are this machine's.
func TestTwentyEnginesAtOnceEndWithoutADifference(t *testing.T) {
	const engines = 20
	requests := 150
	if v := os.Getenv(envLoad); v != "" {
		var err error
		requests, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	x := newTier(t, rig.Standalone(t).URL())
	type one struct {
		sim   *simulator
		tier  *tier
		side  *sidecar.Sidecar
		batch [][]byte
	}
	all := make([]*one, engines)
	blocks := 0
	for i := range all {
		o := &one{sim: newSimulator(t, rand.New(rand.NewPCG(7, uint64(i))), publisher.Options{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"})}
		o.sim.limit = 400
		o.tier = &tier{t: t, store: x.store, scope: ranking.Scope{Tenant: "t", Model: fmt.Sprint("m", i)}}
		o.side, _ = run(t, x, sidecar.Config{Scope: o.tier.scope, Replica: fmt.Sprint("r", i), Scheme: scheme,
			Endpoints: []string{o.sim.opts.Endpoint}, Replays: []string{o.sim.opts.Replay}, Logger: quiet})
		for range requests {
			if events := o.sim.request(); len(events) > 0 {
				o.batch = append(o.batch, o.sim.payload(events))
				for _, e := range events {
					blocks += len(e.([]any)[1].([]any))
				}
			}
		}
		all[i] = o
	}
	for _, o := range all {
		ready(t, o.side)
	}
	begin := time.Now()
	var wg sync.WaitGroup
	batches := 0
	for _, o := range all {
		batches += len(o.batch)
		wg.Go(func() {
			for _, p := range o.batch {
				o.sim.pub.Publish(p)
			}
		})
	}
	wg.Wait()
	for _, o := range all {
		require.Eventually(t, func() bool { return o.side.Settled(uint64(len(o.batch))) }, patience, time.Millisecond)
	}
	took := time.Since(begin)
	t.Logf("%d batches with %d blocks in %v: %.0f batches/s, %.0f blocks/s", batches, blocks, took.Round(time.Millisecond),
		float64(batches)/took.Seconds(), float64(blocks)/took.Seconds())
	for i, o := range all {
		wrong, missing, extra, err := o.sim.compare(o.tier)
		require.NoError(t, err)
		require.Zero(t, wrong+missing+extra, "engine %d: %d wrong, %d missing of %d", i, wrong, missing, len(o.sim.all))
	}
}

// TestHowLongAStoreAndARemovalTakeToShow logs the time from the publisher's send to a lookup that sees it.
func TestHowLongAStoreAndARemovalTakeToShow(t *testing.T) {
	x := newTier(t, rig.Standalone(t).URL())
	e := newEngine(t)
	s, _ := run(t, x, config(e))
	ready(t, s)
	var stored, removed []time.Duration
	for n := 1; n <= 100; n++ {
		e.publish(list{"BlockStored", list{n}, nil, anyOf(toks(n)), 4, nil})
		at := time.Now()
		for x.match(toks(n), 4, "") == "" {
			require.Less(t, time.Since(at), patience)
		}
		stored = append(stored, time.Since(at))
		e.publish(list{"BlockRemoved", list{n}})
		at = time.Now()
		for x.match(toks(n), 4, "") != "" {
			require.Less(t, time.Since(at), patience)
		}
		removed = append(removed, time.Since(at))
	}
	for what, all := range map[string][]time.Duration{"stored": stored, "removed": removed} {
		slices.Sort(all)
		t.Logf("%s: p50 %v, p99 %v", what, all[50].Round(10*time.Microsecond), all[98].Round(10*time.Microsecond))
	}
}
