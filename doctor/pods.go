package doctor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Limits of what is called healthy.
const (
	lagWarn     = 0.25 // seconds, p99 of the log lag
	silenceWarn = 3.0  // seconds; about half a second in peace, answers end at 5
	probeSlow   = 0.05 // seconds, p99 of a probe of Redis
)

func checkPods(f *Facts, out *findings) {
	versions := map[string][]string{}
	loaded := map[float64][]string{}
	for i := range f.Pods {
		p := &f.Pods[i]
		if !checkPodReady(p, out) {
			continue
		}
		m := p.Metrics
		version := m.Label("inferencecache_build_info", "version")
		if revision := m.Label("inferencecache_build_info", "revision"); revision != "" {
			version += " (" + revision + ")"
		}
		versions[version] = append(versions[version], p.Addr)
		loaded[m.Sum("inferencecache_policies_loaded")] = append(loaded[m.Sum("inferencecache_policies_loaded")], p.Addr)
		checkPodRedis(p, out)
		checkPodCache(p, out)
		checkPodPolicies(f, p, out)
		checkPodTrouble(p, out)
		checkPodReasons(p, out)
	}
	if len(versions) > 1 {
		out.add(Warn, "pods.version", "", "pods run different versions", "For longer than a rollout this is one that is stuck: kubectl rollout status. Mixed versions may answer the same lookup differently.", groups(versions)...)
	} else if len(versions) == 1 && len(f.Pods) > 1 {
		out.ok("pods.version", "", "all run version %s", slices.Collect(maps.Keys(versions))[0])
	}
	if len(loaded) > 1 {
		byText := map[string][]string{}
		for n, addrs := range loaded {
			byText[fmt.Sprintf("%g policies", n)] = addrs
		}
		out.add(Warn, "pods.policies_differ", "", "pods have different numbers of policies in force: the same lookup gets different answers", "One of them did not get the last change: look at its mount of the ConfigMap and its log.", groups(byText)...)
	}
}

func groups(by map[string][]string) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(by)) {
		out = append(out, key+": "+strings.Join(by[key], ", "))
	}
	return out
}

// checkPodReady tells whether there are metrics to go on with.
func checkPodReady(p *PodFacts, out *findings) bool {
	const check = "pods.ready"
	switch {
	case p.Err != nil:
		out.add(Fail, check, p.Addr, "the pod's HTTP port does not answer", "Give the HTTP address (--http-bind-address, 8080), not the gRPC one; else look at the pod's log and why it restarts.", p.Err.Error())
		return false
	case !p.Ready && strings.Contains(p.Says, "layout mismatch"):
		out.add(Fail, check, p.Addr, "the pod refuses the index: its --shards or version is not the layout's", "Start it with the number of shards that the message names.", p.Says)
	case !p.Ready:
		out.add(Fail, check, p.Addr, "the pod is not ready", "The text says why; with Redis away see the findings about redis.", p.Says)
	default:
		out.ok(check, p.Addr, "ready")
	}
	if p.Metrics == nil {
		out.add(Warn, "pods.metrics", p.Addr, "its /metrics cannot be read", "Is it a lookup pod's HTTP port? Nothing but readiness was looked at.")
		return false
	}
	if !p.Metrics.Has("inferencecache_build_info") {
		out.add(Warn, "pods.metrics", p.Addr, "its /metrics are not a lookup pod's", "Give the addresses of lookupd; sidecars go to --sidecars.")
		return false
	}
	return true
}

func checkPodRedis(p *PodFacts, out *findings) {
	m := p.Metrics
	if m.Has("inferencecache_redis_up") && m.Sum("inferencecache_redis_up") == 0 && p.Ready {
		out.add(Fail, "pods.redis", p.Addr, "the pod does not reach Redis", "Its log has the error; compare its --redis with doctor's.")
		return
	}
	if q := m.Quantile("inferencecache_redis_probe_seconds", 0.99); q > probeSlow {
		out.add(Warn, "pods.redis", p.Addr, "probes of Redis are slow from this pod: lookups may end in TIMEOUT", "Look at SLOWLOG, at the CPU of Redis' node, and at the network between the two.", fmt.Sprintf("p99 of redis_probe_seconds %s since the pod started", secondsText(q)))
	}
}

func checkPodCache(p *PodFacts, out *findings) {
	const check = "pods.cache"
	m := p.Metrics
	if !m.Has("inferencecache_cache_partitions") {
		out.ok(check, p.Addr, "--cache off: every lookup reads Redis")
		return
	}
	live, waiting := m.Sum("inferencecache_cache_partitions", "state", "live"), m.Sum("inferencecache_cache_partitions", "state", "waiting")
	silence := m.Max("inferencecache_log_silence_seconds")
	lag := m.Quantile("inferencecache_log_lag_seconds", 0.99)
	dropped := m.By("inferencecache_cache_dropped_total", "reason")
	for _, ordinary := range []string{"idle", "room", "closed"} {
		delete(dropped, ordinary)
	}
	evidence := []string{
		fmt.Sprintf("%s followed, %g read through", count(int(live), "partition"), waiting),
		fmt.Sprintf("log heard of %s ago, lag p99 %s", secondsText(silence), secondsText(lag)),
	}
	if len(dropped) > 0 {
		evidence = append(evidence, "memory dropped since the start: "+sumsText(dropped))
	}
	switch {
	case silence >= silenceWarn:
		out.add(Fail, check, p.Addr, "the pod does not hear of the change log: its answers from memory are old, and about to end", "Redis is away or refuses XREAD: see redis_log_errors_total and the pod's log.", evidence...)
	case waiting > 0:
		out.add(Warn, check, p.Addr, "partitions read through: each lookup there costs Redis a read", "For a few seconds after a start or a failover this is normal. For longer: see cache_dropped_total by reason; steadily gap means that the log is too short for the ingest rate.", evidence...)
	case lag > lagWarn:
		out.add(Warn, check, p.Addr, "changes reach this pod late", "The pod or Redis is short of CPU.", evidence...)
	default:
		out.ok(check, p.Addr, "%s", strings.Join(evidence, "; "))
	}
}

func checkPodPolicies(f *Facts, p *PodFacts, out *findings) {
	const check = "pods.policies"
	m := p.Metrics
	if n := m.Sum("inferencecache_policy_reload_failures_total"); n > 0 {
		evidence := []string{fmt.Sprintf("%g failed reloads since the pod started, %g policies in force", n, m.Sum("inferencecache_policies_loaded"))}
		if at := m.Sum("inferencecache_policy_reload_last_success_timestamp_seconds"); at > 0 {
			evidence = append(evidence, "in force since "+time.Unix(int64(at), 0).UTC().Format(time.RFC3339))
		}
		out.add(Warn, check, p.Addr, "changed policies were wrong and not put in force", "The pod's log names file, line and field; run lookupctl policy check on the directory. If it was mended since, the count stays until the pod restarts.", evidence...)
		return
	}
	if f.Policies != nil && f.Policies.Err == nil {
		if have, want := m.Sum("inferencecache_policies_loaded"), f.Policies.Set.Len(); int(have) != want {
			out.add(Warn, check, p.Addr, fmt.Sprintf("the pod has %g policies in force, the directory has %d", have, want), "The pod reads another directory, has no --policy-dir, or did not get the last change.")
		}
	}
}

// checkPodTrouble looks at counters that stay 0 in peace.
func checkPodTrouble(p *PodFacts, out *findings) {
	for _, c := range []struct{ name, label, text, fix string }{
		{"panics_total", "", "a panic was caught", "It is a fault of the program: report it with the stack in the log."},
		{"lookup_errors_total", "reason", "lookups failed open because something failed", "index: Redis refused or was gone. stuck: Redis hangs. panic: report it. The log has the words."},
		{"index_garbage_total", "kind", "values in Redis could not be read", "See index.garbage; the pod's log names the keys."},
		{"index_shard_failures_total", "shard", "lookups went on without a shard", "That shard's node is slow or gone: see redis.cluster."},
		{"ingest_dropped_total", "reason", "reports were acknowledged and not indexed", "A producer is misconfigured: the log says in what."},
		{"lookup_rejected_total", "reason", "lookups were answered NO_HINT for what they carry", "A gateway sends what cannot be looked up: docs/metrics.md explains each reason."},
	} {
		name := "inferencecache_" + c.name
		sums := p.Metrics.By(name, c.label)
		delete(sums, "reserved_tenant") // probes
		delete(sums, "no_full_block")   // short prompts
		if len(sums) > 0 {
			out.add(Warn, "pods."+c.name, p.Addr, c.text, c.fix+" It counts since the pod started: look whether it still moves.", sumsText(sums))
		}
	}
	if n := p.Metrics.Sum("inferencecache_sweep_partitions_behind"); n > 0 {
		out.add(Warn, "pods.sweep", p.Addr, fmt.Sprintf("by this pod's account %g partitions are behind in sweeping", n), "See sweeper; more pods, or a longer --sweep-interval.")
	}
}

// checkPodReasons looks at the share of codes that tell of trouble.
func checkPodReasons(p *PodFacts, out *findings) {
	reasons := p.Metrics.By("inferencecache_lookup_route_calls_total", "reason_code")
	total := 0.0
	for _, n := range reasons {
		total += n
	}
	if total < 100 {
		return
	}
	for _, c := range []struct {
		code  string
		share float64
		fix   string
	}{
		{"UNKNOWN_TENANT", 0.01, "Gateway and sidecars disagree about the tenant: lookupctl explain --redis … shows which names the block is held under."},
		{"UNKNOWN_MODEL", 0.01, "Gateway and sidecars disagree about the model: lookupctl explain --redis … shows which names the block is held under."},
		{"UNKNOWN_HASH_SCHEME", 0.01, "Gateway and sidecars disagree about the hash scheme: lookupctl explain --redis … shows which names the block is held under."},
		{"TIMEOUT", 0.01, "Redis is slow, a budget too tight (lookupTimeoutMs, the gateway's deadline), or the pod short of CPU."},
		{"POLICY_REQUIRES_CHAIN", 0.05, "A gateway sends exact hashes to a tenant that takes chains only."},
	} {
		if share := reasons[c.code] / total; share > c.share {
			out.add(Warn, "pods.reasons", p.Addr, fmt.Sprintf("%.0f %% of the lookups since the pod started got %s", 100*share, c.code), c.fix, sumsText(reasons))
		}
	}
}

func sumsText(sums map[string]float64) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		if key == "" {
			parts = append(parts, fmt.Sprintf("%.0f", sums[key]))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %.0f", key, sums[key]))
	}
	return strings.Join(parts, ", ")
}

func secondsText(s float64) string {
	switch {
	case math.IsNaN(s):
		return "unknown"
	case math.IsInf(s, 1):
		return "beyond the last bucket"
	default:
		return ageText(time.Duration(s * float64(time.Second)))
	}
}

func checkGRPC(f *Facts, out *findings) {
	const check = "pods.grpc"
	for i := range f.GRPC {
		g := &f.GRPC[i]
		switch {
		case g.Refused:
			out.add(Warn, check, g.Addr, "the pod takes tokens, and not ours for the probe", "Give --token-file; what else is wrong with its answers was not looked at.", g.Err.Error())
		case g.Err != nil:
			out.add(Fail, check, g.Addr, "the gRPC port does not answer a lookup", "Give host:port of --grpc-bind-address (9090); is the pod ready, does it speak TLS (--tls, --tls-ca-file)?", g.Err.Error())
		case g.Service == "NOT_SERVING" || g.Health == "NOT_SERVING":
			out.add(Warn, check, g.Addr, "the pod answers, and tells load balancers not to send it lookups", "It is starting, leaving, or does not reach Redis: see its /readyz.",
				fmt.Sprintf("health %s, service %s, index %s", g.Health, g.Service, g.Index))
		default:
			out.ok(check, g.Addr, "answers a probe in %s with %s", ageText(g.Took), g.Reason)
		}
	}
}
