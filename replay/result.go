package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Result is what a replay found. Its JSON form is stable: fields are only added.
type Result struct {
	// Requests were played of the Total in the trace; fewer when the replay was broken off.
	Requests int `json:"requests"`
	Total    int `json:"total"`
	// Blocks is how many prompt blocks those requests have together.
	Blocks  int64   `json:"blocks"`
	Seconds float64 `json:"seconds"`

	// Reuse compares policies on the same requests: the tier's hints first.
	Reuse []Reuse `json:"reuse"`
	// Reasons counts the answers by reason code, most frequent first.
	Reasons []ReasonCount `json:"reasons"`
	Routing Routing       `json:"routing"`
	Latency Latency       `json:"latency"`
	Spread  Spread        `json:"spread"`
	// Engines has one entry for each engine, by number.
	Engines []EngineLoad `json:"engines"`
}

// Reuse is the prompt blocks that were found in a cache under one routing policy.
type Reuse struct {
	Policy string `json:"policy"`
	Reused int64  `json:"reused_blocks"`
	// Share of all prompt blocks, from 0 to 1.
	Share float64 `json:"share"`
}

// The policies that Result.Reuse compares.
const (
	PolicyHints      = "hints"
	PolicyRoundRobin = "round_robin"
	// PolicyPooled is one shared cache as large as all engines' together: what
	// routing could reach at best if no block were held twice.
	PolicyPooled = "one_cache_of_same_size"
	// PolicyUnbounded is one shared cache that never evicts: all that the trace offers.
	PolicyUnbounded = "one_unbounded_cache"
)

// ReasonCount is how many lookups got one reason code.
type ReasonCount struct {
	Reason string  `json:"reason_code"`
	Count  int     `json:"count"`
	Share  float64 `json:"share"`
}

// ReasonFailed stands in the histogram for lookups that got no answer at all.
const ReasonFailed = "(call failed)"

// Routing tells where requests went and why.
type Routing struct {
	// Followed requests went where the hint said; Warmup and RoundRobin in turn.
	Followed   int `json:"followed_hint"`
	RoundRobin int `json:"round_robin"`
	Warmup     int `json:"warmup"`
	// Foreign is how many of RoundRobin had a hint for a replica that is none of the engines.
	Foreign int `json:"foreign_hint"`

	// Of the prefix matches that were followed: the engine held exactly as many
	// tokens as the hint said, fewer, or more. One request at a time, all are exact
	// unless holds expire or something else writes to the same keys.
	Exact       int `json:"match_exact"`
	Overstated  int `json:"match_overstated"`
	Understated int `json:"match_understated"`

	// Retries is how many writes the tier refused at first.
	Retries int64 `json:"retries"`
	// LagMS is how far behind the asked speed the latest start was, milliseconds.
	LagMS float64 `json:"lag_ms"`
}

// Latency has the times of each kind of call.
type Latency struct {
	// Lookup is the round trip as a gateway sees it, InPod what the pod says of itself.
	Lookup Percentiles `json:"lookup"`
	InPod  Percentiles `json:"lookup_in_pod"`
	Report Percentiles `json:"report"`
	Evict  Percentiles `json:"evict"`
}

// Spread is how evenly the engines were used.
type Spread struct {
	Requests Distribution `json:"requests"`
	Blocks   Distribution `json:"blocks"`
	// Computed counts the blocks that an engine did not reuse: its prefill work.
	Computed Distribution `json:"computed_blocks"`
}

// Distribution of one number over the engines; Stddev is the population's.
type Distribution struct {
	Min    int64   `json:"min"`
	Max    int64   `json:"max"`
	Mean   float64 `json:"mean"`
	Stddev float64 `json:"stddev"`
}

// EngineLoad is what one engine did.
type EngineLoad struct {
	ID       string `json:"replica_id"`
	Requests int64  `json:"requests"`
	Blocks   int64  `json:"blocks"`
	Reused   int64  `json:"reused_blocks"`
	Stored   int64  `json:"stored_blocks"`
	Evicted  int64  `json:"evicted_blocks"`
	// Resident is how many blocks its cache held at the end.
	Resident int `json:"resident_blocks"`
}

func distributionOf(values []int64) Distribution {
	d := Distribution{Min: slices.Min(values), Max: slices.Max(values)}
	for _, v := range values {
		d.Mean += float64(v) / float64(len(values))
	}
	var squares float64
	for _, v := range values {
		squares += (float64(v) - d.Mean) * (float64(v) - d.Mean)
	}
	d.Stddev = math.Sqrt(squares / float64(len(values)))
	return d
}

func spreadOf(engines []EngineLoad) Spread {
	var requests, blocks, computed []int64
	for _, e := range engines {
		requests = append(requests, e.Requests)
		blocks = append(blocks, e.Blocks)
		computed = append(computed, e.Blocks-e.Reused)
	}
	return Spread{
		Requests: distributionOf(requests),
		Blocks:   distributionOf(blocks),
		Computed: distributionOf(computed),
	}
}

// reasonCounts sorts a histogram: most frequent first, then by name.
func reasonCounts(counts map[string]int, total int) []ReasonCount {
	out := make([]ReasonCount, 0, len(counts))
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, ReasonCount{Reason: reason, Count: counts[reason], Share: share(int64(counts[reason]), int64(total))})
	}
	slices.SortStableFunc(out, func(a, b ReasonCount) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

func reuse(policy string, reused, blocks int64) Reuse {
	return Reuse{Policy: policy, Reused: reused, Share: share(reused, blocks)}
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
