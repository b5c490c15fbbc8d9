package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/replay"
)

// keys of every command here; the hash is that of the token ids 1 to 16.
const (
	scope  = " --tenant demo --model llama"
	keys   = scope + " --scheme vllm"
	golden = "ea06fc71a5ee6e88"
	ids16  = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"
)

func TestWhatWasReportedIsFoundByChainTokensAndRequest(t *testing.T) {
	pod := startPod(t, map[string]*ranking.Policy{"demo": {
		EvictionTTL: ranking.DefaultPolicy().EvictionTTL, ChainMatching: true, TenantHot: true, Affinity: true,
	}})
	out := must(t, pod, "report"+keys+" --replica engine-0 --tokens "+ids16+" --tier t2")
	require.Equal(t, "accepted: 1 hold, 0 records of stats\n", out)

	for _, prompt := range []string{
		"--chain " + golden + " --block-tokens 16",
		"--chain 0x" + golden + ",ff --counts 16,4",
		"--tokens " + ids16,
		"--prefix-hash " + golden + " --prefix-tokens 16",
	} {
		got := decode[lookupReply](t, must(t, pod, "lookup -o json"+keys+" "+prompt))
		require.Equal(t, "PREFIX_MATCH", got.Reason, prompt)
		require.Len(t, got.Scores, 1, prompt)
		require.Equal(t, "engine-0", got.Scores[0].ReplicaID)
		require.EqualValues(t, 16, got.Scores[0].Matched)
		require.Equal(t, "T2", got.Scores[0].Tier)
	}

	request := `{"model_id":"llama","hash_scheme":"vllm","block_hashes":["6gb8caXubog="],"block_token_counts":[16]}`
	out = must(t, pod, "lookup --tenant demo --request -", request)
	require.Contains(t, out, "PREFIX_MATCH: 1 replica, ")
	require.Contains(t, out, "RANK  REPLICA   SCORE")
	require.Contains(t, out, "engine-0 holds the first 16 of 16 tokens of the prompt")
}

func TestEvictAndClearTakeHoldsAway(t *testing.T) {
	pod := startPod(t, nil)
	state := func() stateReply { return decode[stateReply](t, must(t, pod, "state -o json"+scope)) }
	must(t, pod, "report"+keys+" --replica a --chain 01,02,03 --block-tokens 16 --hit-rate 0.5 --pressure 0.25 --memory-bytes 1048576")
	require.EqualValues(t, 3, state().Prefixes)

	require.Equal(t, "accepted: a no longer holds 2 hashes\n", must(t, pod, "evict"+scope+" --replica a --hash 02,0x03"))
	require.EqualValues(t, 1, state().Prefixes)
	require.Equal(t, "accepted: a is alive, if it was known\n", must(t, pod, "alive"+scope+" --replica a"))
	require.Equal(t, []replicaStats{{ReplicaID: "a", HitRate: 0.5, Pressure: 0.25, MemoryBytes: 1 << 20}}, state().Replicas)

	require.Equal(t, eventReply{Accepted: true, Events: 1}, decode[eventReply](t, must(t, pod, "clear -o json"+scope+" --replica a")))
	require.Equal(t, stateReply{Tenant: "demo", Model: "llama", Replicas: []replicaStats{}}, state())
	require.Contains(t, must(t, pod, "state"+scope), "The index knows nothing here.")
}

func TestStateTable(t *testing.T) {
	pod := startPod(t, nil)
	must(t, pod, "report"+keys+" --replica engine-0 --chain 01,02 --block-tokens 16 --hit-rate 0.5 --pressure 0.25 "+
		"--memory-bytes 3221225472 --t2-hit-tokens 1 --t2-query-tokens 4 --client-version v1")
	must(t, pod, "report"+scope+" --replica engine-1 --pressure 1")
	require.Equal(t, `tenant demo, model llama: 2 distinct prefix keys, 2 replicas with stats

REPLICA   HIT RATE  PRESSURE  CACHE MEMORY  OFFLOAD HITS  SIDECAR
engine-0  50.0 %    0.250     3.0 GiB       25.0 %        v1
engine-1  0.0 %     1.000     0 B           -             -
`, must(t, pod, "state"+scope))
}

func TestReportTakesUpdatesAsJSON(t *testing.T) {
	pod := startPod(t, nil)
	updates := `{"replica_id":"a","prefixes":[{"prefix_hash":"AQ==","token_count":16}]}
		{"replica_id":"b","hash_scheme":"other","prefixes":[{"block_hashes":["AQ==","Ag=="],"block_token_counts":[16,16]}],"stats":{"hit_rate":1}}`
	got := decode[reportReply](t, must(t, pod, "report -o json"+keys+" --update -", updates))
	require.Equal(t, reportReply{Accepted: true, Updates: 2, Holds: 3, Stats: 1}, got)
	require.EqualValues(t, 3, decode[stateReply](t, must(t, pod, "state -o json"+scope)).Prefixes)
}

func TestEachReasonIsExplained(t *testing.T) {
	strict := ranking.DefaultPolicy()
	strict.RequireChain = true
	pod := startPod(t, map[string]*ranking.Policy{"strict": &strict})
	lookup := func(rest string) string { return must(t, pod, "lookup "+rest) }
	const chain = " --chain 0a --block-tokens 100"

	require.Contains(t, lookup(strings.TrimSpace(keys)+chain), "nothing matched, or the prompt is below the policy's minimumPrefixTokens")
	must(t, pod, "report"+keys+" --replica engine-0 --chain 01 --block-tokens 100 --hit-rate 0.9")
	for _, c := range [][2]string{
		{keys + " --chain 01,02 --block-tokens 100", "engine-0 holds the first 100 of 200 tokens"},
		{keys + chain, "AFFINITY_HINT: 1 replica"},
		{keys + " --prefix-hash 0a", "TENANT_HOT: 1 replica"},
		{" --tenant x --model llama --scheme vllm" + chain, "The index holds nothing for tenant x"},
		{" --tenant demo --model x --scheme vllm" + chain, "nothing for model x"},
		{scope + " --scheme x" + chain, "compare the schemes of gateway and sidecars, or every replica that holds it has let its lease run out: see lookupctl doctor."},
		{" --tenant strict --model m --scheme vllm --prefix-hash 0a", "The CachePolicy of strict takes only lookups with a chain"},
		{" --model m --scheme s" + chain, "The request names no tenant"},
		{" --tenant t --scheme s" + chain, "The request names no model"},
		{scope + chain, "The request names no hash scheme"},
		{" --tenant inferencecache.io/probe --model m --scheme s" + chain, "reserved for probes"},
		{keys + " --text hello", "needs a tokenizer"},
		{keys + " --tokens 1,2", "short of one block"},
	} {
		require.Contains(t, lookup(c[0]), c[1], c[0])
	}
}

func TestUsageMistakesAreOneLineAndExitTwo(t *testing.T) {
	for line, want := range map[string]string{
		"":              "expected one of",
		"lookpu":        "unexpected argument lookpu",
		"lookup --nope": "unknown flag --nope",
		"lookup -o yaml --chain 01 --block-tokens 1": "--output must be one of",
		"lookup" + keys:                                                              "no prompt; give --chain",
		"lookup" + keys + " --chain 01":                                              "--chain needs the tokens of its blocks",
		"lookup" + keys + " --chain zz --block-tokens 1":                             `"zz" is no hash; write bytes in hex`,
		"lookup" + keys + " --chain 01,02 --counts 1":                                "--chain has 2 hashes but --counts 1 number",
		"lookup" + keys + " --chain 01 --counts x":                                   `--counts: "x" is no number of tokens`,
		"lookup" + keys + " --chain 01 --counts 1 --block-tokens 1":                  "not both",
		"lookup" + keys + " --counts 1":                                              "--counts goes with --chain",
		"lookup" + keys + " --chain 01 --block-tokens=-1":                            "--block-tokens is -1",
		"lookup" + keys + " --prefix-hash 01 --prefix-tokens=-1":                     "--prefix-tokens is -1",
		"lookup" + keys + " --prefix-tokens 1 --chain 01":                            "--prefix-tokens goes with --prefix-hash",
		"lookup" + keys + " --tokens 1,x":                                            `"x" is no token id`,
		"lookup" + keys + " --tokens -":                                              "--tokens is an empty list",
		"lookup" + keys + " --tokens 1 --chain 01 --block-tokens 1":                  "--block-tokens goes with --chain; token ids",
		"lookup" + keys + " --tokens 1 --chain 01 --counts 1":                        "not both",
		"lookup --request - --chain 01 --block-tokens 1":                             "--request carries the prompt",
		"state --model m":                                                            "--tenant is missing",
		"state --tenant t":                                                           "--model is missing",
		"report" + keys + " --replica a":                                             "nothing to report",
		"report" + keys + " --chain 01 --block-tokens 1":                             "replica_id is empty",
		"report" + scope + " --replica a --chain 01 --block-tokens 1":                "the hash scheme is empty",
		"report" + scope + " --replica a --pressure 2":                               "--pressure is 2; give from 0 to 1",
		"report" + scope + " --replica a --memory-bytes=-1":                          "--memory-bytes is -1",
		"report" + keys + " --replica a --tokens 1,2":                                "fewer than one block of 16",
		"report" + keys + " --replica a --tier t9":                                   "--tier must be one of",
		"report --tenant inferencecache.io/probe --model m --replica a --pressure 1": "reserved for probes",
		"evict" + scope + " --replica a":                                             "--hash is missing",
		"evict" + scope + " --hash 01":                                               "--replica is missing",
		"clear --tenant t --replica a":                                               "--model is missing",
		"replay":                                                                     "<trace.jsonl>",
		"replay t.jsonl --engines 0":                                                 "engines is 0",
		"replay t.jsonl --limit=-1":                                                  "--limit is -1",
		"gen-trace --requests 0":                                                     "must be at least 1",
		"state --timeout 0s" + scope:                                                 "--timeout is 0s",
	} {
		got := ctl(t, "127.0.0.1:1", line)
		require.Equal(t, exitUsage, got.code, "%s: %s", line, got.err)
		require.Empty(t, got.out, line)
		require.Contains(t, got.err, want, line)
		require.True(t, strings.HasPrefix(got.err, "lookupctl: "), got.err)
		require.Equal(t, 1, strings.Count(got.err, "\n"), got.err)
	}
}

func TestFailuresAreOneLineAndExitOne(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := closed.Addr().String()
	require.NoError(t, closed.Close())
	pod := startPod(t, nil)
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte("\n{\"timestamp\":-1}"), 0o600))
	for _, c := range []struct{ server, line, stdin, want string }{
		{nobody, "state" + scope, "", "no lookup pod answers at " + nobody},
		{nobody, "replay ../../examples/traces/sample.jsonl --retry-for 0", "", "no lookup pod answers at " + nobody},
		{pod, "lookup --request -", "{", "must be a LookupRouteRequest as JSON"},
		{pod, "lookup --request /nowhere", "", "no such file"},
		{pod, "lookup" + keys + " --tokens @/nowhere", "", "no such file"},
		{pod, "report --update -", "", "no update in it"},
		{pod, "report --update -", `{"nope":1}`, "update 1: "},
		{pod, "report --update -", `{} x`, "update 2: "},
		{pod, "replay /nowhere", "", "no such file"},
		{pod, "replay " + bad, "", bad + ":2: timestamp: -1 is not a whole number"},
		{pod, "policy check /nowhere", "", "no such file"},
	} {
		got := ctl(t, c.server, c.line, c.stdin)
		require.Equal(t, exitFailure, got.code, "%s: %s", c.line, got.err)
		require.Empty(t, got.out, c.line)
		require.Contains(t, got.err, c.want, c.line)
		require.Equal(t, 1, strings.Count(got.err, "\n"), got.err)
	}
}

// The tier acknowledges what it drops; the operator is told before.
func TestWhatTheTierWouldDropIsRefused(t *testing.T) {
	long := strings.Repeat("n", 513)
	names := " --tenant t --model m --replica r"
	for line, want := range map[string]string{
		"report --scheme vllm --tenant t --model m --prefix-hash 01 --prefix-tokens 1 --replica " + long: "name_too_long",
		"report" + names + " --prefix-hash 01 --prefix-tokens 1 --scheme " + long:                        "within 512 bytes",
		"report" + names + " --scheme vllm --adapter " + long + " --prefix-hash 01 --prefix-tokens 1":    "within 512 bytes",
		"report" + names + " --scheme vllm --prefix-tokens 1 --prefix-hash " + strings.Repeat("ab", 129): "within 128 bytes",
		"report" + names + " --scheme vllm --block-tokens 16 --chain " + strings.Repeat("ab", 129):       "within 128 bytes",
		"report" + names + " --scheme vllm --block-tokens 1 --chain " + strings.Repeat("01,", 65_537):    "within 65536 blocks",
		"evict --tenant t --model m --hash 01 --replica " + long:                                         "within 512 bytes",
		"evict" + names + " --hash " + strings.Repeat("ab", 129):                                         "within 128 bytes",
		"evict" + names + " --hash 01 --adapter " + long:                                                 "within 512 bytes",
		"clear --replica r --model m --tenant " + long:                                                   "within 512 bytes",
		"alive --replica r --tenant t --model " + long:                                                   "within 512 bytes",
	} {
		got := ctl(t, "127.0.0.1:1", line)
		require.Equal(t, exitUsage, got.code, "%.60s: %s", line, got.err)
		require.Contains(t, got.err, want, "%.60s", line)
		require.Empty(t, got.out)
	}
}

func TestFlagsComeFromTheEnvironment(t *testing.T) {
	pod := startPod(t, nil)
	t.Setenv("LOOKUPCTL_SERVER", pod)
	t.Setenv("LOOKUPCTL_TENANT", "demo")
	t.Setenv("LOOKUPCTL_MODEL", "llama")
	t.Setenv("LOOKUPCTL_OUTPUT", "json")
	var out strings.Builder
	require.Equal(t, exitOK, run(context.Background(), []string{"state"}, streams{in: strings.NewReader(""), out: &out, err: &out}))
	require.Equal(t, "demo", decode[stateReply](t, out.String()).Tenant)

	out.Reset()
	require.Equal(t, exitOK, run(context.Background(), []string{"report", "--help"}, streams{in: strings.NewReader(""), out: &out, err: &out}))
	require.Contains(t, out.String(), "LOOKUPCTL_T2_HIT_TOKENS")
	require.Contains(t, out.String(), "LOOKUPCTL_T2_QUERY_TOKENS")
	require.NotContains(t, out.String(), "LOOKUPCTL_T_2")
}

func TestHelpAndVersionExitZero(t *testing.T) {
	for _, line := range []string{"--help", "lookup --help", "replay --help", "policy check --help", "--version"} {
		got := ctl(t, "127.0.0.1:1", line)
		require.Equal(t, exitOK, got.code, got.err)
		require.NotEmpty(t, got.out)
		require.Empty(t, got.err)
	}
}

func TestPolicyCheckPrintsPoliciesOrEveryMistake(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a.yaml", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: team-a}\n"+
		"spec: {evictionTTL: 10m, lookupTimeoutMs: 5, routingFloorScore: \"0.25\", affinityRouting: Disabled}\n")
	require.Equal(t, "OK: 1 policy in "+dir+`

TENANT  TTL    MIN PREFIX  MIN MATCHED  FLOOR  TIMEOUT  AFFINITY  CHAIN  TENANT HOT  EVICTION
team-a  10m0s  0           64           0.25   5ms      off       on     on          LRU
`, must(t, "unused:1", "policy check "+dir))

	write("b.yaml", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: team-b}\nspec: {evictionTTL: soon, nope: 1}\n")
	got := ctl(t, "unused:1", "policy check "+dir)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.err, "b.yaml:4: spec.evictionTTL: ")
	require.Contains(t, got.err, `spec."nope": `)
	require.Equal(t, 2, strings.Count(got.err, "\n"), got.err)

	write("b.yaml", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: team-b}\nspec: {evictionTTL: 48h}\n")
	got = ctl(t, "unused:1", "policy check "+dir)
	require.Equal(t, exitFailure, got.code, "pods refuse it too")
	require.Contains(t, got.err, "b.yaml:4: spec.evictionTTL: is 48h0m0s for tenant \"team-b\"")
	must(t, "unused:1", "policy check --key-ttl 49h "+dir)
	require.Equal(t, exitUsage, ctl(t, "unused:1", "policy check --key-ttl 0s "+dir).code)

	write("b.yaml", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: team-b}\nspec: {evictionTTL: soon, nope: 1}\n")
	got = ctl(t, "unused:1", "policy check -o json "+dir)
	require.Equal(t, exitFailure, got.code)
	reply := decode[policyReply](t, got.out)
	require.False(t, reply.OK)
	require.Len(t, reply.Problems, 2)
	require.Empty(t, got.err)
}

func TestReplayAndGenTrace(t *testing.T) {
	pod := startPod(t, nil)
	trace := must(t, pod, "gen-trace --requests 60 --seed 3")
	out := must(t, pod, "replay - --engines 3 --blocks 40 --slots 4", trace)
	for _, want := range []string{
		"60 requests, ", "3 engines of 40 blocks", "with the tier's hints", "one shared cache of 120 blocks",
		"PREFIX_MATCH", "57 requests followed the hint", "lookup, in the pod", "replay-engine-2",
	} {
		require.Contains(t, out, want)
	}
	result := decode[replay.Result](t, must(t, pod, "replay - --engines 3 --blocks 40 --limit 10 -o json", trace))
	require.Equal(t, 10, result.Requests)
	require.Len(t, result.Engines, 3)
}
