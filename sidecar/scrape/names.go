package scrape

// meaning is what a series tells, whatever the engine calls it.
type meaning uint8

const (
	running meaning = iota
	waiting
	usage // share of the cache in use, 0–1
	hits
	queries
	rate // hit rate as the engine computes it, 0–1
	t2hits
	t2queries
	meanings
)

// names are those of vLLM, old and new, and SGLang. Counters stand with and without
// _total, which some exporters drop.
var names = map[string]meaning{
	"vllm:num_requests_running":                running,
	"vllm:num_requests_waiting":                waiting,
	"vllm:kv_cache_usage_perc":                 usage,
	"vllm:gpu_cache_usage_perc":                usage,
	"vllm:cpu_cache_usage_perc":                usage,
	"vllm:prefix_cache_hits_total":             hits,
	"vllm:prefix_cache_hits":                   hits,
	"vllm:prefix_cache_queries_total":          queries,
	"vllm:prefix_cache_queries":                queries,
	"vllm:gpu_prefix_cache_hits_total":         hits,
	"vllm:gpu_prefix_cache_hits":               hits,
	"vllm:gpu_prefix_cache_queries_total":      queries,
	"vllm:gpu_prefix_cache_queries":            queries,
	"vllm:external_prefix_cache_hits_total":    t2hits,
	"vllm:external_prefix_cache_hits":          t2hits,
	"vllm:external_prefix_cache_queries_total": t2queries,
	"vllm:external_prefix_cache_queries":       t2queries,
	"sglang:num_running_reqs":                  running,
	"sglang:num_queue_reqs":                    waiting,
	"sglang:token_usage":                       usage,
	"sglang:cache_hit_rate":                    rate,
}

// reading gathers the series of one rank.
type reading struct {
	sum, top [meanings]float64
	has      [meanings]bool
}

func (r *reading) take(s sample) {
	r.sum[s.as] += s.value
	r.top[s.as] = max(r.top[s.as], s.value)
	r.has[s.as] = true
}
