package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
)

// sample is a generated trace; small, since the index of these tests is slow.
func sample(t *testing.T, requests int) []Request {
	t.Helper()
	text := generated(t, GenerateOptions{Requests: requests, BlockTokens: 512, Seed: 7})
	trace, err := NewReader(bytes.NewReader(text), "generated", 512).ReadAll(0)
	require.NoError(t, err)
	return trace
}

// timeless is a result without what differs between two equal runs.
func timeless(r *Result) Result {
	c := *r
	c.Seconds, c.Latency = 0, Latency{}
	return c
}

func TestHintsBeatRoundRobinAndEveryPrefixMatchIsTrue(t *testing.T) {
	o := testOptions()
	index := newModel()
	trace := sample(t, 150)
	r, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)

	require.Equal(t, 150, r.Requests)
	require.Greater(t, r.Reuse[0].Share, r.Reuse[1].Share)
	require.LessOrEqual(t, r.Reuse[0].Share, r.Reuse[3].Share)
	require.Positive(t, r.Routing.Exact)
	require.Zero(t, r.Routing.Overstated)
	require.Zero(t, r.Routing.Understated)
	require.Equal(t, 4, r.Routing.Warmup)
	require.Equal(t, 150, r.Routing.Followed+r.Routing.RoundRobin+r.Routing.Warmup)
	require.Equal(t, 150, r.Latency.Lookup.Calls)
	requireIndexHoldsWhatTheEnginesHold(t, index, trace, &o, r)
}

// requireIndexHoldsWhatTheEnginesHold counts both sides: distinct blocks of all
// caches against the tier's own count of prefix keys.
func requireIndexHoldsWhatTheEnginesHold(t *testing.T, index lookupsvc.Index, trace []Request, o *Options, r *Result) {
	t.Helper()
	state, err := index.State(t.Context(), ranking.Scope{Tenant: o.Tenant, Model: o.Model})
	require.NoError(t, err)
	var evicted int64
	resident := 0
	for _, e := range r.Engines {
		evicted += e.Evicted
		resident += e.Resident
		require.Equal(t, e.Stored-e.Evicted, int64(e.Resident))
	}
	require.Positive(t, evicted, "the trace must not fit into the engines' caches")
	require.LessOrEqual(t, state.Prefixes, int64(resident))

	holders := 0 // of every block, as the index sees it
	for id := range distinctBlocks(trace) {
		var ev ranking.Evidence
		require.NoError(t, index.Match(t.Context(), &ranking.Query{
			Scope:  ranking.Scope{Tenant: o.Tenant, Model: o.Model},
			Space:  ranking.Space{Scheme: o.Scheme, Adapter: o.Adapter},
			Hashes: [][]byte{evictedHash(id, o.Seed)}, Exact: true, TTLMS: time.Hour.Milliseconds(),
		}, &ev))
		holders += len(ev.Runs)
	}
	require.Equal(t, resident, holders)
}

func distinctBlocks(trace []Request) map[uint64]bool {
	ids := map[uint64]bool{}
	for _, req := range trace {
		for _, id := range req.Blocks {
			ids[id] = true
		}
	}
	return ids
}

func TestOneRequestAtATimeGivesTheSameHintsInEachRun(t *testing.T) {
	client, trace, o := servePod(t, newModel()), sample(t, 120), testOptions()
	first, err := Run(t.Context(), client, trace, o)
	require.NoError(t, err)
	second, err := Run(t.Context(), client, trace, o) // Clear makes up for the first
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(timeless(first), timeless(second)))
}

func TestWholeChainsKeepTheIndexAsTrueAsNewBlocksAlone(t *testing.T) {
	index, trace, o := newModel(), sample(t, 120), testOptions()
	o.WholeChains = true
	r, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)
	require.Positive(t, r.Routing.Exact)
	require.Zero(t, r.Routing.Overstated+r.Routing.Understated)
	requireIndexHoldsWhatTheEnginesHold(t, index, trace, &o, r)
}

func TestReportedTokenCountsAreRunningSums(t *testing.T) {
	index, o := newModel(), testOptions()
	trace := []Request{
		{InputTokens: 600, Blocks: []uint64{0, 1}},
		{InputTokens: 1100, Blocks: []uint64{0, 2, 3}}, // 2 and 3 are a suffix
	}
	o.Engines, o.Warmup = 1, 0
	_, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)
	for id, want := range map[uint64]int64{0: 512, 1: 600, 2: 1024, 3: 1100} {
		var ev ranking.Evidence
		require.NoError(t, index.Match(t.Context(), &ranking.Query{
			Scope: ranking.Scope{Tenant: "t", Model: "m"}, Space: ranking.Space{Scheme: "s"},
			Hashes: [][]byte{evictedHash(id, 0)}, Exact: true, TTLMS: time.Hour.Milliseconds(),
		}, &ev))
		require.Len(t, ev.Runs, 1, "block %d", id)
		require.Equal(t, want, ev.Runs[0].Tokens, "block %d", id)
	}
}

func TestSeveralRequestsAtOnceRunToTheEnd(t *testing.T) {
	o := testOptions()
	o.Concurrency, o.Slots, o.TokenTime = 8, 4, 20*time.Millisecond
	index := newModel()
	var calls atomic.Int64
	o.Progress = func(done, total int) {
		require.Equal(t, calls.Add(1), int64(done))
		require.Equal(t, 120, total)
	}
	trace := sample(t, 120)
	r, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)
	require.Equal(t, 120, r.Requests)
	require.EqualValues(t, 120, calls.Load())
	requireIndexHoldsWhatTheEnginesHold(t, index, trace, &o, r)
}

// Every prompt begins with the same block. While one engine alone serves, nothing
// tells it apart, so that without a warm-up it gets everything.
func TestWithoutWarmupTheFirstEngineKeepsASharedStart(t *testing.T) {
	var trace []Request
	for i := range uint64(40) {
		trace = append(trace, Request{InputTokens: 1024, Blocks: []uint64{0, 1 + i}})
	}
	client, o := servePod(t, newModel()), testOptions()
	o.Warmup = 0
	cold, err := Run(t.Context(), client, trace, o)
	require.NoError(t, err)
	require.EqualValues(t, 40, cold.Spread.Requests.Max)

	o.Warmup = 4
	warm, err := Run(t.Context(), client, trace, o)
	require.NoError(t, err)
	require.Positive(t, warm.Spread.Requests.Min)
	require.Less(t, warm.Spread.Requests.Max, int64(40))
}

func TestEnginesReportTheirLoadByTheTracesClock(t *testing.T) {
	index, o := newModel(), testOptions()
	o.Engines, o.Warmup, o.Slots, o.TokenTime = 2, 2, 2, 10*time.Millisecond
	trace := []Request{
		{TimestampMS: 0, InputTokens: 1, OutputTokens: 1000, Blocks: []uint64{1}},   // engine 0 until 10 s
		{TimestampMS: 100, InputTokens: 1, OutputTokens: 100, Blocks: []uint64{2}},  // engine 1 until 1.1 s
		{TimestampMS: 20_000, InputTokens: 1, OutputTokens: 0, Blocks: []uint64{2}}, // engine 1 again
	}
	_, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)
	state, err := index.State(t.Context(), ranking.Scope{Tenant: "t", Model: "m"})
	require.NoError(t, err)
	require.Len(t, state.Replicas, 2)
	require.InDelta(t, 0, state.Replicas[0].Stats.Pressure, 1e-6)
	require.InDelta(t, 0.5, state.Replicas[1].Stats.Pressure, 1e-6)
}

func TestHintsForStrangersAreCountedAndNotFollowed(t *testing.T) {
	index, o := newModel(), testOptions()
	trace := []Request{{InputTokens: 512, Blocks: []uint64{5}}}
	o.Warmup = 0
	require.NoError(t, index.Report(t.Context(), &ranking.Report{
		Scope: ranking.Scope{Tenant: "t", Model: "m"}, Replica: "stranger", Scheme: "s",
		Entries: []ranking.Entry{{Hash: evictedHash(5, 0), Tokens: 512, Tier: ranking.TierT1}},
	}))
	r, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)
	require.Equal(t, Routing{RoundRobin: 1, Foreign: 1}, r.Routing)
}

// refusing is an index that is away for some calls, as when Redis is.
type refusing struct {
	lookupsvc.Index
	calls  atomic.Int64
	refuse func(call int64) bool
}

var errAway = errors.New("index is away")

func (f *refusing) Report(ctx context.Context, rs ...*ranking.Report) error {
	if f.refuse(f.calls.Add(1)) {
		return errAway
	}
	return f.Index.Report(ctx, rs...)
}

func TestReportsThatTheTierDoesNotTakeAreSentAgain(t *testing.T) {
	index := &refusing{Index: newModel(), refuse: func(call int64) bool { return call%5 == 0 }}
	o := testOptions()
	o.RetryFor = time.Minute
	trace := sample(t, 60)
	r, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)
	require.Positive(t, r.Routing.Retries)
	require.Zero(t, r.Routing.Overstated+r.Routing.Understated)
}

func TestAReplayGivesUpWhenTheTierStaysAway(t *testing.T) {
	index := &refusing{Index: newModel(), refuse: func(call int64) bool { return call > 10 }}
	r, err := Run(t.Context(), servePod(t, index), sample(t, 60), testOptions())
	require.ErrorContains(t, err, errAway.Error())
	require.ErrorContains(t, err, fmt.Sprintf("request %d of 60", r.Requests+1))
	require.Positive(t, r.Requests)
	require.False(t, BrokenOff(err))
}

func TestABrokenOffReplayTellsWhatItFound(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := testOptions()
	o.Progress = func(done, _ int) {
		if done == 20 {
			cancel()
		}
	}
	r, err := Run(ctx, servePod(t, newModel()), sample(t, 60), o)
	require.True(t, BrokenOff(err), "%v", err)
	require.GreaterOrEqual(t, r.Requests, 20)
	require.Less(t, r.Requests, 60)
}

func TestRequestsWaitForTheirTime(t *testing.T) {
	trace := []Request{
		{TimestampMS: 1000, InputTokens: 1, Blocks: []uint64{1}},
		{TimestampMS: 2000, InputTokens: 1, Blocks: []uint64{2}},
	}
	o := testOptions()
	o.Speed = 10
	r, err := Run(t.Context(), servePod(t, newModel()), trace, o)
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.Seconds, 0.1)
	require.GreaterOrEqual(t, r.Routing.LagMS, 0.0)
}

func TestALookupThatFailsGoesRoundRobin(t *testing.T) {
	r := &run{
		o: &Options{}, engines: []*engine{{id: "a"}, {id: "b"}},
		number: map[string]int{"a": 0, "b": 1}, reasons: map[string]int{},
	}
	e, followed := r.route(0, nil)
	require.Equal(t, "a", e.id)
	require.False(t, followed)
	e, followed = r.route(1, &pb.LookupRouteResponse{ReasonCode: "AFFINITY_HINT", ReplicaScores: []*pb.ReplicaScore{{ReplicaId: "a"}}})
	require.Equal(t, "a", e.id)
	require.True(t, followed)
	e, _ = r.route(2, &pb.LookupRouteResponse{ReasonCode: "NO_HINT"})
	require.Equal(t, "b", e.id)
	require.Equal(t, map[string]int{ReasonFailed: 1, "AFFINITY_HINT": 1, "NO_HINT": 1}, r.reasons)
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"engines is 0":         func(o *Options) { o.Engines = 0 },
		"blocks is 0":          func(o *Options) { o.Blocks = 0 },
		"block tokens is 0":    func(o *Options) { o.BlockTokens = 0 },
		"must all be set":      func(o *Options) { o.Model = "" },
		"prefix is empty":      func(o *Options) { o.EnginePrefix = "" },
		"concurrency is 0":     func(o *Options) { o.Concurrency = 0 },
		"pipeline is -1":       func(o *Options) { o.Pipeline = -1 },
		"speed is -2":          func(o *Options) { o.Speed = -2 },
		"warmup is -3":         func(o *Options) { o.Warmup = -3 },
		"slots is -1":          func(o *Options) { o.Slots = -1 },
		"token time is 0s":     func(o *Options) { o.Slots = 1 },
		"the timeout is 0s":    func(o *Options) { o.RPCTimeout = 0 },
		"the time to retry is": func(o *Options) { o.RetryFor = -1 },
	} {
		o := testOptions()
		change(&o)
		r, err := Run(t.Context(), nil, nil, o)
		require.ErrorContains(t, err, want)
		require.Nil(t, r)
	}
}

// With LOOKUPTIER_DATA set this reads Mooncake's conversation trace and knows its
// figure; without, it holds a generated one to a count by the definition.
func TestUnboundedShareIsThatOfBlocksSeenBefore(t *testing.T) {
	trace := sample(t, 1000)
	if dir := os.Getenv("LOOKUPTIER_DATA"); dir != "" {
		f, err := os.Open(filepath.Join(dir, "conversation_trace.jsonl"))
		require.NoError(t, err)
		defer f.Close()
		trace, err = NewReader(f, "conversation_trace.jsonl", 512).ReadAll(0)
		require.NoError(t, err)
		require.Len(t, trace, 12_031)
	}
	rows, blocks := compare(trace, &Options{Engines: 8, Blocks: 2000}, 0, 0)
	require.Equal(t, blocks-int64(len(distinctBlocks(trace))), rows[3].Reused)
	if len(trace) == 12_031 {
		require.EqualValues(t, 288_500, blocks)
		require.InDelta(t, 0.366, rows[3].Share, 0.0005)
	}
}
