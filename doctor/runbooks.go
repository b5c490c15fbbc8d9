package doctor

// runbooks has the page for each check that an alert watches too.
var runbooks = map[string]string{
	"redis.eviction_policy": "redis-evicts-keys",
	"redis.memory":          "redis-memory-near-limit",
	"redis.reachable":       "lookup-redis-unreachable",
	"pods.redis":            "lookup-redis-unreachable",
	"index.empty":           "lookup-index-empty",
	"sweeper":               "lookup-sweeper-behind",
	"pods.sweep":            "lookup-sweeper-behind",
	"pods.ready":            "lookup-pod-not-ready",
	"pods.cache":            "lookup-read-through",
	"pods.policies":         "lookup-policy-reload-failed",
	"pods.policies_differ":  "lookup-policy-reload-failed",
	"producers.schemes":     "lookup-names-unknown",
	"names":                 "lookup-names-unknown",
	"policies.tenants":      "lookup-names-unknown",
	"producers.lease":       "kvsidecar-engine-gone",
	"sidecars.engine":       "kvsidecar-engine-gone",
	"sidecars.redis":        "kvsidecar-redis-away",
}

func runbookOf(check string) string {
	page := runbooks[check]
	if page == "" {
		return ""
	}
	return "docs/runbooks/" + page + ".md"
}
