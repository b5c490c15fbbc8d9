package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/policies"
)

// metricsOf parses a page.
func metricsOf(t *testing.T, text string) *Metrics {
	t.Helper()
	m, err := ParseMetrics(strings.NewReader(text))
	require.NoError(t, err)
	return m
}

const podPage = `
inferencecache_build_info{version="v1",revision="abc"} 1
inferencecache_redis_up 1
inferencecache_policies_loaded 1
inferencecache_cache_partitions{state="live"} 3
inferencecache_cache_partitions{state="waiting"} 0
inferencecache_log_silence_seconds 0.4
`

func judgePod(t *testing.T, page string) *Report {
	return Judge(&Facts{Pods: []PodFacts{{Addr: "pod", Ready: true, Says: "ok", Metrics: metricsOf(t, page)}}})
}

func TestAHealthyPodHasNoFindings(t *testing.T) {
	require.Empty(t, troubles(judgePod(t, podPage)))
	off := judgePod(t, "inferencecache_build_info{version=\"v1\"} 1\n")
	require.Empty(t, troubles(off))
	require.Equal(t, "--cache off: every lookup reads Redis", find(t, off, "pods.cache").Text)
}

func TestWhatIsWrongWithAPodIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		was, is, check string
		severity       Severity
		says           string
	}{
		"redis away":          {"redis_up 1", "redis_up 0", "pods.redis", Fail, "does not reach Redis"},
		"log silent":          {"silence_seconds 0.4", "silence_seconds 4.5", "pods.cache", Fail, "does not hear of the change log"},
		"reading through":     {`{state="waiting"} 0`, `{state="waiting"} 2`, "pods.cache", Warn, "read through"},
		"policies refused":    {"", "inferencecache_policy_reload_failures_total 2\n", "pods.policies", Warn, "not put in force"},
		"panic":               {"", "inferencecache_panics_total 1\n", "pods.panics_total", Warn, "a panic was caught"},
		"garbage":             {"", "inferencecache_index_garbage_total{kind=\"hold\"} 7\n", "pods.index_garbage_total", Warn, "could not be read"},
		"dropped reports":     {"", "inferencecache_ingest_dropped_total{reason=\"empty_scheme\"} 7\n", "pods.ingest_dropped_total", Warn, "not indexed"},
		"unknown tenants":     {"", "inferencecache_lookup_route_calls_total{reason_code=\"UNKNOWN_TENANT\"} 50\ninferencecache_lookup_route_calls_total{reason_code=\"NO_HINT\"} 50\n", "pods.reasons", Warn, "50 % of the lookups since the pod started got UNKNOWN_TENANT"},
		"lag":                 {"", "# TYPE inferencecache_log_lag_seconds histogram\ninferencecache_log_lag_seconds_bucket{le=\"0.1\"} 0\ninferencecache_log_lag_seconds_bucket{le=\"0.5\"} 900\ninferencecache_log_lag_seconds_bucket{le=\"+Inf\"} 900\ninferencecache_log_lag_seconds_sum 3\ninferencecache_log_lag_seconds_count 900\n", "pods.cache", Warn, "late"},
		"behind with sweeps":  {"", "inferencecache_sweep_partitions_behind 3\n", "pods.sweep", Warn, "3 partitions are behind"},
		"not a pod's metrics": {podPage, "up 1\n", "pods.metrics", Warn, "not a lookup pod's"},
	} {
		t.Run(name, func(t *testing.T) {
			page := c.is + podPage
			if c.was != "" {
				require.Contains(t, podPage, c.was)
				page = strings.Replace(podPage, c.was, c.is, 1)
			}
			r := judgePod(t, page)
			require.Equal(t, []string{string(c.severity) + " " + c.check}, troubles(r))
			require.Contains(t, find(t, r, c.check).Text, c.says)
			require.NotEmpty(t, find(t, r, c.check).Fix)
		})
	}
}

func TestProbesAndShortPromptsAreNoTrouble(t *testing.T) {
	require.Empty(t, troubles(judgePod(t, podPage+"inferencecache_lookup_rejected_total{reason=\"reserved_tenant\"} 9\ninferencecache_lookup_rejected_total{reason=\"no_full_block\"} 9\n")))
}

func TestPodsThatDisagreeAreNamed(t *testing.T) {
	other := strings.Replace(strings.Replace(podPage, `"v1"`, `"v2"`, 1), "policies_loaded 1", "policies_loaded 3", 1)
	r := Judge(&Facts{Pods: []PodFacts{
		{Addr: "a", Ready: true, Metrics: metricsOf(t, podPage)}, {Addr: "b", Ready: true, Metrics: metricsOf(t, other)},
		{Addr: "c", Says: "not ready: layout mismatch: Redis is laid out for --shards 4", Metrics: metricsOf(t, podPage)},
		{Addr: "d", Err: errors.New("refused")},
	}})
	require.ElementsMatch(t, []string{"fail pods.ready", "fail pods.ready", "warn pods.version", "warn pods.policies_differ"}, troubles(r))
	require.Equal(t, []string{"v1 (abc): a, c", "v2 (abc): b"}, find(t, r, "pods.version").Evidence)
	require.Contains(t, find(t, r, "pods.ready").Text, "refuses the index")
}

func TestWhatIsWrongWithASidecarIsNamed(t *testing.T) {
	const page = `
kvsidecar_build_info{version="v1"} 1
kvsidecar_engine_live{engine="e"} 1
kvsidecar_redis_away{replica="r"} 0
kvsidecar_blocks_resident{replica="r",tier="T1"} 10
`
	judge := func(text string, index *IndexFacts) *Report {
		return Judge(&Facts{Index: index, SweepInterval: time.Minute, Sidecars: []SidecarFacts{{Addr: "s", Ready: true, Metrics: metricsOf(t, text)}}})
	}
	require.Empty(t, troubles(judge(page, nil)))
	for more, want := range map[string]string{
		"kvsidecar_lost_batches_total{engine=\"e\"} 2\n":                      "warn sidecars.engine",
		"kvsidecar_event_lag_seconds{engine=\"e\"} 20\n":                      "warn sidecars.engine",
		"kvsidecar_redis_foreign_writes_total{replica=\"r\"} 2\n":             "fail sidecars.redis",
		"kvsidecar_blocks_kept_out{replica=\"r\",reason=\"extra_keys\"} 90\n": "warn sidecars.blocks",
		"kvsidecar_malformed_batches_total{reason=\"malformed\"} 1\n":         "warn sidecars.engine",
	} {
		require.Equal(t, []string{want}, troubles(judge(page+more, nil)), more)
	}
	require.Equal(t, []string{"fail sidecars.redis"}, troubles(judge(strings.Replace(page, `away{replica="r"} 0`, `away{replica="r"} 1`, 1), nil)))
	elsewhere := judge(page, &IndexFacts{Layout: Layout{Present: true, Version: "1", Shards: "1"}})
	require.Contains(t, find(t, elsewhere, "sidecars.blocks").Evidence, `"r": the sidecar has 10 blocks, the index counts 0`)
}

func TestClocksThatDisagreeAreNamed(t *testing.T) {
	judge := func(skews ...time.Duration) *Report {
		r := &RedisFacts{Name: "redis"}
		for _, s := range skews {
			r.Nodes = append(r.Nodes, NodeFacts{Addr: "n", Version: "7.0.1", Skew: s, Uncertain: time.Millisecond})
		}
		return Judge(&Facts{Redis: r})
	}
	require.Empty(t, troubles(judge(time.Second, time.Second+10*time.Millisecond)))
	require.Equal(t, []string{"warn redis.clock"}, troubles(judge(0, 3*time.Second)))
	require.Equal(t, []string{"fail redis.clock"}, troubles(judge(-time.Minute, 3*time.Second)))
	require.Equal(t, []string{"warn redis.clock"}, troubles(judge(-2*time.Minute)))
}

func TestAnOldOrSickServerIsNamed(t *testing.T) {
	for want, n := range map[string]NodeFacts{
		"fail redis.version":     {Version: "6.2.7"},
		"fail redis.loading":     {Version: "7.2.0", Loading: true},
		"fail redis.persistence": {Version: "7.2.0", SaveFailed: true},
		"fail redis.role":        {Version: "8.0.0", Role: "slave"},
		"fail redis.memory":      {Version: "8.0.0", Used: 95, Max: 100, MaxPolicy: "noeviction"},
		"warn redis.memory":      {Version: "8.0.0", Used: 80, Max: 100, MaxPolicy: "noeviction"},
	} {
		require.Equal(t, []string{want}, troubles(Judge(&Facts{Redis: &RedisFacts{Name: "redis", Nodes: []NodeFacts{n}}})), want)
	}
}

func TestWhatIsWrongWithPoliciesIsNamed(t *testing.T) {
	set := func(spec string) *policies.Set {
		s, err := policies.Parse(policies.Source{Name: "p.yaml", Data: []byte(
			"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: demo}\nspec: " + spec + "\n")})
		require.NoError(t, err)
		return s
	}
	judge := func(spec string) *Report {
		return Judge(&Facts{KeyTTL: time.Hour, Policies: &PolicyFacts{Dir: "pol", Set: set(spec)}})
	}
	require.Empty(t, troubles(judge("{evictionTTL: 59m}")))
	require.Equal(t, []string{"fail policies.ttl"}, troubles(judge("{evictionTTL: 1h}")))
	require.Equal(t, []string{"warn policies.floor"}, troubles(judge(`{routingFloorScore: "200"}`)))
	require.Equal(t, []string{"warn policies.floor"}, troubles(judge("{minimumMatchedTokens: 4096}")))

	bad := Judge(&Facts{Policies: &PolicyFacts{Dir: "pol", Err: errors.New("x"), Problems: policies.Problems{{File: "p.yaml", Line: 3, Text: "no such field"}}}})
	require.Equal(t, []string{"p.yaml:3: no such field"}, find(t, bad, "policies.parse").Evidence)
}

func TestFindingsAreSortedAndEvidenceIsBounded(t *testing.T) {
	out := &findings{}
	out.ok("a", "", "fine")
	out.add(Warn, "b", "", "text", "fix", strings.Split(strings.Repeat("x,", 19)+"x", ",")...)
	out.add(Fail, "c", "", "text", "fix")
	r := out.report()
	require.Equal(t, []int{1, 1, 1}, []int{r.Failed, r.Warned, r.Passed})
	require.Equal(t, "c", r.Findings[0].Check)
	require.Equal(t, "and 12 more", r.Findings[1].Evidence[evidenceShown])
}

func TestSpellingKeepsWhatTellsNamesApart(t *testing.T) {
	require.Equal(t, Spelling("My_Model \n"), Spelling("my-model"))
	require.NotEqual(t, Spelling("llama-3.1"), Spelling("llama-31"))
	require.Equal(t, []string{`"A", "a"`}, alikeNames([]string{"a", "A", "b"}))
}

func TestNothingToExamineIsAnError(t *testing.T) {
	_, err := Examine(t.Context(), Options{})
	require.Error(t, err)
}
