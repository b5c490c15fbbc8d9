package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// world is an index in a real Redis.
type world struct {
	t *testing.T
	*store.Store
	url string
}

func newWorld(t *testing.T, shards int) *world {
	t.Helper()
	server := rig.Standalone(t)
	s, err := store.Open(t.Context(), store.Options{Redis: server.Client(), Shards: shards})
	require.NoError(t, err)
	return &world{t, s, server.URL()}
}

var demo = ranking.Scope{Tenant: "demo", Model: "llama"}

// holds makes a replica hold the first n of the blocks 01, 02, …, of 16 tokens each.
func (w *world) holds(scope ranking.Scope, space ranking.Space, replica string, n int, change ...func(*ranking.Report)) {
	w.t.Helper()
	r := &ranking.Report{Scope: scope, Replica: replica, Scheme: space.Scheme}
	for i := range n {
		r.Entries = append(r.Entries, ranking.Entry{Adapter: space.Adapter, Hash: []byte{byte(i + 1)}, Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1})
	}
	for _, f := range change {
		f(r)
	}
	require.NoError(w.t, w.Report(w.t.Context(), r))
}

func (w *world) evict(replica string, block byte) {
	w.t.Helper()
	require.NoError(w.t, w.Publish(w.t.Context(), &ranking.Event{Kind: ranking.EventEvicted, Scope: demo, Replica: replica, Hash: []byte{block}}))
}

// chainOf is the flags of a chain of n blocks.
func chainOf(n int) string {
	var hashes []string
	for i := range n {
		hashes = append(hashes, fmt.Sprintf("%02x", i+1))
	}
	return " --block-tokens 16 --chain " + strings.Join(hashes, ",")
}

// explain runs the command in its JSON form; it must work and be of one moment.
func (w *world) explain(line string) explainReply {
	w.t.Helper()
	o := ctl(w.t, "", "explain -o json --redis "+w.url+" "+line)
	require.Equal(w.t, exitOK, o.code, o.err)
	r := decode[explainReply](w.t, o.out)
	require.True(w.t, r.Steady)
	return r
}

func (r explainReply) text() string { return strings.Join(r.Why, "\n") }

func aged(d time.Duration) func(*ranking.Report) {
	return func(r *ranking.Report) { r.SeenMS = time.Now().Add(-d).UnixMilli() }
}

func pressed(p float32) func(*ranking.Report) {
	return func(r *ranking.Report) { r.Stats = &ranking.Stats{Pressure: p, HitRate: 0.5} }
}

var vllm = ranking.Space{Scheme: "vllm"}

func TestExplainFollowsEachReplicaBlockByBlock(t *testing.T) {
	for _, shards := range []int{1, 3} {
		w := newWorld(t, shards)
		w.holds(demo, vllm, "full", 8)
		w.holds(demo, vllm, "gap", 8)
		w.evict("gap", 5)
		w.holds(demo, vllm, "old", 8, aged(31*time.Minute))
		w.holds(demo, vllm, "old", 2)
		w.holds(demo, vllm, "lapsed", 8)
		w.holds(demo, ranking.Space{Scheme: "sglang"}, "stranger", 8)
		_, err := w.RenewLease(t.Context(), demo, "lapsed", time.Millisecond)
		require.NoError(t, err)
		time.Sleep(2 * time.Millisecond)

		r := w.explain(strings.TrimSpace(keys) + chainOf(8))
		require.Equal(t, "PREFIX_MATCH", r.Reason)
		require.Equal(t, shards, r.Shards)
		require.Equal(t, 3, r.Serving)
		require.Equal(t, []string{"sglang", "vllm"}, r.Schemes)
		byID := map[string]trace{}
		for _, run := range r.Runs {
			byID[run.ReplicaID] = run
		}
		require.Equal(t, lost{At: 8, Why: lostOutside, AgainAt: -1}, byID["full"].Lost)
		require.Equal(t, lost{At: 4, Why: lostAbsent, Others: 1, AgainAt: 5}, byID["gap"].Lost, "in its shard alone or beside others")
		require.Equal(t, []span{{0, 3, "held"}, {4, 4, lostAbsent}, {5, 7, "held"}}, byID["gap"].Spans)
		require.Equal(t, lostExpired, byID["old"].Lost.Why)
		require.Equal(t, 2, byID["old"].Lost.At)
		require.InDelta(t, 31*time.Minute.Milliseconds(), byID["old"].Lost.AgeMS, float64(time.Minute.Milliseconds()))
		require.Equal(t, standingLapsed, byID["lapsed"].Standing)
		require.Negative(t, *byID["lapsed"].LeaseMS)
		require.Equal(t, standingNone, byID["stranger"].Standing)
	}
}

func TestExplainReadsACluster(t *testing.T) {
	set := rig.Cluster(t, 3)
	s, err := store.Open(t.Context(), store.Options{Redis: set.Client(), Shards: 4})
	require.NoError(t, err)
	w := &world{t, s, set.URL()}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		w.holds(demo, vllm, id, 8)
	}
	w.evict("a", 3)
	r := w.explain(strings.TrimSpace(keys) + chainOf(8))
	require.Equal(t, 4, r.Shards)
	require.Equal(t, 5, r.Serving)
	require.Equal(t, lost{At: 2, Why: lostAbsent, Others: 4, AgainAt: 3}, r.Runs[4].Lost)
	require.Equal(t, "UNKNOWN_MODEL", w.explain("--tenant demo --model Llama --scheme vllm"+chainOf(8)).Reason)
}

func TestExplainNamesTheCauseOfAMiss(t *testing.T) {
	w := newWorld(t, 1)
	ask := strings.TrimSpace(keys) + chainOf(8)
	require.Contains(t, w.explain(ask).Why[0], "The index holds nothing for anyone")
	w.holds(demo, vllm, "engine-0", 8)
	w.holds(demo, ranking.Space{Scheme: "vllm", Adapter: "french"}, "engine-0", 1, func(r *ranking.Report) { r.Entries[0].Hash = []byte("f") })

	for line, want := range map[string][]string{
		"--tenant Demo --model llama --scheme vllm" + chainOf(8):                                {"UNKNOWN_TENANT", `tenant "demo" instead of "Demo"`},
		"--tenant demo --model Llama --scheme vllm" + chainOf(8):                                {"UNKNOWN_MODEL", `model "llama" instead of "Llama"`},
		"--tenant demo --model llama --scheme vllm-v1" + chainOf(8):                             {"UNKNOWN_HASH_SCHEME", "schemes known there: vllm", `hash scheme "vllm" instead of "vllm-v1"`},
		"--tenant demo --model llama --scheme vllm --adapter x" + chainOf(8):                    {"AFFINITY_HINT", `adapter "" instead of "x"`},
		"--tenant demo --model llama --scheme vllm --chain ffff --block-tokens 64":              {"AFFINITY_HINT", "No replica that serves the domain holds the chain's first block"},
		"--tenant demo --model LLAMA --scheme vllm --chain ffff --block-tokens 64":              {"UNKNOWN_MODEL", "spelt almost alike"},
		"--tenant demo --model llama --scheme vllm --prefix-hash 99 --tenant-hot-max-age 0s":    {"AFFINITY_HINT", "TENANT_HOT found nobody warm"},
		"--tenant demo --model llama --scheme vllm --tokens 1,2":                                {"NO_HINT", "no_full_block", "fewer than one block of 16"},
		"--tenant demo --model llama --scheme vllm --text hello":                                {"NO_HINT", "no_tokenizer", "send token_ids"},
		"--tenant demo --model llama" + chainOf(1):                                              {"NO_HINT", "does not name tenant, model and hash scheme"},
		"--tenant inferencecache.io/probe --model llama --scheme vllm --chain 01 --counts 16":   {"NO_HINT", "set aside for probes"},
		"--tenant demo --model llama --scheme vllm --chain 01 --counts 0":                       {"AFFINITY_HINT", "counts 0 tokens"},
		"--tenant demo --model llama --scheme vllm --lookup-timeout 1ns --chain 01 --counts 64": {"PREFIX_MATCH", "more than the budget of 1ns"},
	} {
		r := w.explain(line)
		require.Equal(t, want[0], r.Reason, line)
		for _, words := range want[1:] {
			require.Contains(t, r.text(), words, line)
		}
	}
}

func TestExplainNamesWhatRemovedAMatch(t *testing.T) {
	w := newWorld(t, 1)
	w.holds(demo, vllm, "a", 8)
	w.holds(demo, vllm, "b", 8)
	r := w.explain(strings.TrimSpace(keys) + chainOf(8))
	require.Equal(t, "AFFINITY_HINT", r.Reason)
	require.Contains(t, r.text(), "Score 0 under routingFloorScore 0.1: hold shared by 2 of 2 replicas")
	require.Equal(t, "routingFloorScore", r.WhatIfs[0].Setting)

	w.holds(demo, vllm, "c", 1, pressed(0))
	w.holds(demo, vllm, "a", 8, pressed(1))
	w.evict("b", 1)
	r = w.explain(strings.TrimSpace(keys) + chainOf(8))
	require.Contains(t, r.text(), "No replica matched")
	r = w.explain(strings.TrimSpace(keys) + " --pressure-weight 0" + chainOf(8))
	require.Equal(t, "PREFIX_MATCH", r.Reason)

	dir := t.TempDir()
	policy := func(spec string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(
			"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: demo}\nspec: "+spec+"\n"), 0o600))
	}
	for spec, want := range map[string][]string{
		`{routingFloorScore: "200"}`:                             {"AFFINITY_HINT", "under routingFloorScore 200"},
		`{minimumMatchedTokens: 500}`:                            {"AFFINITY_HINT", "No replica matched minimumMatchedTokens 500: the most is 128"},
		`{minimumPrefixTokens: 500}`:                             {"AFFINITY_HINT", "fewer than minimumPrefixTokens 500"},
		`{minimumPrefixTokens: 500, affinityRouting: Disabled}`:  {"NO_HINT", "shorter than minimumPrefixTokens 500 and affinity is off"},
		`{minimumMatchedTokens: 500, affinityRouting: Disabled}`: {"NO_HINT", "affinityRouting is Disabled; Enabled, it would name"},
		`{evictionTTL: 1ms}`:                                     {"AFFINITY_HINT", "did not report it again within the evictionTTL of 1ms"},
		`{strategy: {enableChainMatching: false}}`:               {"NO_HINT", "chain_matching_off"},
	} {
		policy(spec)
		time.Sleep(2 * time.Millisecond)
		r := w.explain(strings.TrimSpace(keys) + " --pressure-weight 0 --policy-dir " + dir + chainOf(8))
		require.Equal(t, want[0], r.Reason, spec)
		require.Contains(t, r.text(), want[1], spec)
		require.Equal(t, "the tenant's CachePolicy", r.PolicyOrigin)
	}
	policy("{strategy: {requireChain: true}}")
	require.Contains(t, w.explain(strings.TrimSpace(keys)+" --prefix-hash 01 --policy-dir "+dir).text(), "requireChain: true")

	// The policy has the chain fields ignored, but they contradict one another.
	policy("{strategy: {enableChainMatching: false, enableTenantHot: false}}")
	o := ctl(t, "", "explain -o json --redis "+w.url+keys+" --policy-dir "+dir+" --request -", `{"prefix_hash":"mQ==","block_token_counts":[1]}`)
	require.Equal(t, exitOK, o.code, o.err)
	r = decode[explainReply](t, o.out)
	require.Equal(t, "NO_HINT", r.Reason)
	require.Contains(t, r.text(), "contradict one another")
}

func TestExplainNamesLapsedLeasesAndClearedReplicas(t *testing.T) {
	w := newWorld(t, 1)
	w.holds(demo, vllm, "a", 8)
	w.holds(demo, vllm, "b", 1, func(r *ranking.Report) { r.Entries[0].Hash = []byte("other") })
	_, err := w.RenewLease(t.Context(), demo, "a", time.Millisecond)
	require.NoError(t, err)
	time.Sleep(2 * time.Millisecond)
	r := w.explain(strings.TrimSpace(keys) + chainOf(8))
	require.Contains(t, r.text(), "1 replica would match, but let the lease lapse")

	require.NoError(t, w.Publish(t.Context(), &ranking.Event{Kind: ranking.EventCleared, Scope: demo, Replica: "a"}))
	r = w.explain(strings.TrimSpace(keys) + chainOf(8))
	require.Contains(t, r.text(), "records of a cleared generation")
}

func TestExplainBlamesNoNameForALapsedLease(t *testing.T) {
	w := newWorld(t, 1)
	w.holds(demo, vllm, "a", 8)
	w.holds(ranking.Scope{Tenant: "other", Model: "llama"}, vllm, "b", 8)
	w.holds(demo, ranking.Space{Scheme: "vllm-v1"}, "c", 8)
	_, err := w.RenewLease(t.Context(), demo, "a", time.Millisecond)
	require.NoError(t, err)
	time.Sleep(2 * time.Millisecond)
	for prompt, first := range map[string]string{
		strings.TrimSpace(chainOf(8)):    "1 replica would match, but let the lease lapse",
		"--block-tokens 64 --chain ffff": "Tenant, model and hash scheme vllm are right: the index has records of 1 replica there",
	} {
		r := w.explain(strings.TrimSpace(keys) + " " + prompt)
		require.Equal(t, "UNKNOWN_HASH_SCHEME", r.Reason)
		require.Contains(t, r.Why[0], first)
		for _, advice := range []string{"schemes known there", "held under other names", "spelt almost alike"} {
			require.NotContains(t, r.text(), advice)
		}
	}

	// A scheme without any records is still a matter of names.
	r := w.explain("--tenant demo --model llama --scheme vllm-v2" + chainOf(8))
	require.Contains(t, r.Why[0], "schemes known there: vllm, vllm-v1")
}

func TestExplainSaysWhetherThePodAgrees(t *testing.T) {
	w := newWorld(t, 1)
	w.holds(demo, vllm, "a", 8)
	pod := startPod(t, nil) // on an index of its own, which is empty
	line := "explain --redis " + w.url + keys + chainOf(8)
	o := ctl(t, pod, line)
	require.Equal(t, exitOK, o.code, o.err)
	require.Contains(t, o.out, "answers DIFFERENTLY")
	require.Contains(t, o.out, "- the pod answers NO_HINT, the index says PREFIX_MATCH")
	must(t, pod, "report"+keys+" --replica a"+chainOf(8))
	require.Contains(t, must(t, pod, line), "answers the same.")
	require.True(t, decode[explainReply](t, must(t, pod, line+" -o json")).Pod.Agrees)
	require.Contains(t, must(t, "127.0.0.1:1", line), "Pod: no lookup pod answers at 127.0.0.1:1")
	require.NotContains(t, ctl(t, "", line).out, "Pod ", "no pod is asked that was not named")
}

func TestExplainWritesNothing(t *testing.T) {
	server := rig.Standalone(t)
	rdb := server.Client()
	o := ctl(t, "", "explain --redis "+server.URL()+keys+chainOf(2))
	require.Equal(t, exitOK, o.code, o.err)
	require.Zero(t, rdb.DBSize(t.Context()).Val())
}

func TestExplainNeedsNoMoreThanTheOperatorsRights(t *testing.T) {
	server := rig.Standalone(t, rig.WithACL("user operator on >secret "+strings.Join(store.OperatorACL(), " ")))
	s, err := store.Open(t.Context(), store.Options{Redis: server.Client()})
	require.NoError(t, err)
	w := &world{t, s, server.URLAs("operator", "secret")}
	w.holds(demo, vllm, "a", 8)
	require.Equal(t, "PREFIX_MATCH", w.explain(strings.TrimSpace(keys)+chainOf(8)).Reason)
	require.Contains(t, w.explain("--tenant Demo --model llama --scheme vllm"+chainOf(8)).text(), `tenant "demo" instead of "Demo"`)
}

func TestExplainRefusesALayoutThatItCannotRead(t *testing.T) {
	server := rig.Standalone(t)
	require.NoError(t, server.Client().HSet(t.Context(), store.LayoutKey, "version", "7", "shards", "1").Err())
	o := ctl(t, "", "explain --redis "+server.URL()+keys+chainOf(2))
	require.Equal(t, exitFailure, o.code)
	require.Contains(t, o.err, `layout version "7"`)
}

// The explanation holds itself against the service's answer and its own reading against
// the evidence: whatever stands in the index, both must agree.
func TestExplainAgreesWithTheServiceOnAnyIndex(t *testing.T) {
	w := newWorld(t, 2)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		scope := ranking.Scope{Tenant: "demo", Model: fmt.Sprintf("m%d", n)}
		for range rapid.IntRange(0, 6).Draw(t, "writes") {
			replica := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "replica")
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				require.NoError(t, w.Publish(w.t.Context(), &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: replica}))
			case 1:
				require.NoError(t, w.Publish(w.t.Context(), &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: replica, Hash: []byte{byte(rapid.IntRange(1, 6).Draw(t, "hash"))}}))
			default:
				age := rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "age")
				w.holds(scope, vllm, replica, rapid.IntRange(1, 6).Draw(t, "blocks"), aged(age),
					pressed(rapid.Float32Range(0, 1).Draw(t, "pressure")))
			}
		}
		line := "--tenant demo --scheme vllm --model " + scope.Model
		if rapid.Bool().Draw(t, "exact") {
			line += fmt.Sprintf(" --prefix-hash %02x --prefix-tokens 40", rapid.IntRange(1, 7).Draw(t, "asked"))
		} else {
			line += chainOf(rapid.IntRange(1, 8).Draw(t, "asked"))
		}
		w.explain(line)
	})
}

func TestExplainTable(t *testing.T) {
	const now, minute = int64(1_800_000_000_000), int64(60_000)
	hold := func(n uint32, age int64) ranking.Hold {
		return ranking.Hold{Replica: n, SeenMS: now - age, Tier: ranking.TierT1, Tokens: 16}
	}
	v := &shardView{
		nowMS: now, schemes: []string{"vllm"}, counted: map[uint32]bool{1: true, 2: true, 3: true},
		replicas: map[string]store.ReplicaRecord{
			"engine-0": {Number: 1, StatsMS: now - minute, Stats: ranking.Stats{Pressure: 0.25}},
			"engine-1": {Number: 2, LeaseMS: now + minute}, "engine-2": {Number: 3, LeaseMS: now - 12_000}, "engine-3": {Number: 4},
		},
		records: [][]ranking.Hold{
			{hold(1, minute), hold(2, minute), hold(3, 0)}, {hold(1, minute), hold(2, minute)}, {hold(1, minute), hold(2, 31*minute), hold(9, 0)}, {hold(1, minute)}, {}, {hold(1, minute)},
		},
	}
	q := ranking.Query{Scope: demo, Space: vllm, TTLMS: 30 * minute}
	for i := range v.records {
		q.Hashes, q.Tokens = append(q.Hashes, []byte{byte(i)}), append(q.Tokens, 16)
	}
	ev := ranking.Evidence{NowMS: now,
		Serving: []ranking.Replica{{ID: "engine-0", StatsAtMS: now - minute, Stats: ranking.Stats{Pressure: 0.25}}, {ID: "engine-1"}},
		Runs:    []ranking.Run{{Replica: 0, Tokens: 64, SeenMS: now - minute, Tier: ranking.TierT1, Blocks: 4}, {Replica: 1, Tokens: 32, SeenMS: now - minute, Tier: ranking.TierT1, Blocks: 2}},
	}
	o := &observed{traces: traces(&q, []*shardView{v}), schemes: v.schemes}
	require.True(t, o.agrees(&ev))
	o.steady = true

	x := &explainer{shards: 1, policy: ranking.DefaultPolicy(), origin: "the tenant's CachePolicy", knobs: ranking.DefaultKnobs(), timeout: 100 * time.Millisecond}
	x.policy.RoutingFloorScore = 200
	in := &ranking.Input{Query: q, PrefixTokens: 96}
	e, ifs := ranking.Explain(in, &ev, &x.policy, &x.knobs), ranking.WhatIfs(in, &ev, &x.policy, &x.knobs)
	x.req = &pb.LookupRouteRequest{TenantId: q.Tenant, ModelId: q.Model, HashScheme: q.Scheme}
	reply := &pb.LookupRouteResponse{ReasonCode: string(e.Reason)}
	for _, c := range e.Candidates {
		reply.ReplicaScores = append(reply.ReplicaScores, &pb.ReplicaScore{ReplicaId: c.ReplicaID, Score: c.Score})
	}
	out := x.assemble(&decision{reply: reply, source: "chain", witness: &witness{asked: true, ev: ev, query: q, took: 800 * time.Microsecond}}, in, e, ifs, o)
	out.Redis = "redis://redis:6379/0"
	out.Why = x.why(out)
	var text bytes.Buffer
	out.write(&session{streams: streams{out: &text}}, false)
	require.Equal(t, `AFFINITY_HINT: engine-1
- Score 23.2 under routingFloorScore 200: it matched 64 tokens, and no factor is low: the floor is too high for prompts of this length.
- Affinity gives the prompt seat 2 of 2: engine-1. It claims no cache.

What would change it:
- routingFloorScore 0 instead of 200: PREFIX_MATCH, "engine-0" first with score 23.200

Step by step:
input      chain: 6 blocks, 96 tokens; tenant demo, model llama, scheme vllm, adapter -
budget     --lookup-timeout 100 ms; reading the index took 800 µs from here
policy     the tenant's CachePolicy: TTL 30m0s, min prefix 0, min matched 64, floor 200, affinity on, chains on, tenant hot on
index      redis://redis:6379/0, 1 shard: 2 replicas serve the domain; schemes of the model: vllm

RUN OF    BLOCKS  TOKENS  OLDEST  TIER  THEN
engine-0  0–3     64      1m0s    T1    lost at 4: absent; held again at 5
engine-1  0–1     32      1m0s    T1    lost at 2: expired, last reported 31m0s ago; 1 other holds it; 1 retired record
engine-2  0       16      0s      T1    serves nothing: lease lapsed 12s ago
engine-3  none    0       -       -     serves nothing: no live hold in this scheme

MATCH     TOKENS  × FRESHNESS  × PRESSURE    × SLO  × POWER       = SCORE  FATE
engine-0  64      0.967        0.75          1      0.5 (1 of 2)  23.200   best score below routingFloorScore 200
engine-1  32      0.967        1 (no stats)  1      0 (2 of 2)    0.000    below minimumMatchedTokens 64

affinity   the prompt's hash falls on seat 2 of 2, engine-1
`, text.String())
}
