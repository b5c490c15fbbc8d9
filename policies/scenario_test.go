package policies_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"inferencecache.io/lookuptier/ranking"
)

// The JSON of the conformance scenarios, as far as the pure parts need it.

type scenario struct {
	Name, Why string
	Policies  []json.RawMessage
	Steps     []step
}

type step struct {
	AgeMS  *int64 `json:"age_ms"`
	Report *update
	Event  *event
	Lookup *lookup
	State  *struct {
		Model  string `json:"model_id"`
		Tenant string `json:"tenant_id"`
	}
	Expect expect
}

type update struct {
	Replica  string `json:"replica_id"`
	Model    string `json:"model_id"`
	Tenant   string `json:"tenant_id"`
	Scheme   string `json:"hash_scheme"`
	Adapter  string `json:"adapter_id"`
	Prefixes []struct {
		Hash    []byte   `json:"prefix_hash"`
		Tokens  int32    `json:"token_count"`
		Hashes  [][]byte `json:"block_hashes"`
		Counts  []int32  `json:"block_token_counts"`
		Tier    tier
		Adapter string `json:"adapter_id"`
	}
	Stats *stats
}

type stats struct {
	Replica  string `json:"replica_id"`
	Memory   string `json:"cache_memory_bytes"`
	HitRate  float  `json:"hit_rate"`
	Pressure float  `json:"pressure"`
	Version  string `json:"client_version"`
	T2Hit    string `json:"t2_hit_tokens"`
	T2Query  string `json:"t2_query_tokens"`
}

type event struct {
	Type    string
	Replica string `json:"replica_id"`
	Model   string `json:"model_id"`
	Tenant  string `json:"tenant_id"`
	Hash    []byte `json:"prefix_hash"`
	Adapter string `json:"adapter_id"`
}

type lookup struct {
	Model        string   `json:"model_id"`
	Tenant       string   `json:"tenant_id"`
	Hash         []byte   `json:"prefix_hash"`
	PrefixTokens int32    `json:"prefix_token_count"`
	Scheme       string   `json:"hash_scheme"`
	Hashes       [][]byte `json:"block_hashes"`
	Counts       []int32  `json:"block_token_counts"`
	TokenIDs     []uint32 `json:"token_ids"`
	Text         string   `json:"prompt_text"`
	Adapter      string   `json:"adapter_id"`
	SLO          struct {
		TTFTMS int32 `json:"ttft_ms"`
	}
}

type expect struct {
	Reason  ranking.Reason `json:"reason_code"`
	Adapter string         `json:"adapter_id"`
	Scores  []struct {
		Replica string  `json:"replica_id"`
		Score   float32 `json:"score"`
		Matched int32   `json:"matched_tokens"`
		HitProb float32 `json:"estimated_cache_hit_prob"`
		Tier    tier
	} `json:"replica_scores"`
	Replicas []stats
	Summary  struct {
		Prefixes string `json:"total_prefixes"`
	}
}

// tier is a CacheTier by name or number.
type tier int32

func (v *tier) UnmarshalJSON(b []byte) error {
	if n, ok := strings.CutPrefix(strings.Trim(string(b), `"`), "CACHE_TIER_T"); ok {
		b = []byte(n)
	}
	return json.Unmarshal(b, (*int32)(v))
}

// float is a number or one of protobuf's names for what is none.
type float float32

func (v *float) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 32)
	*v = float(f)
	return err
}

func (v float) orZero() float32 {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return float32(v)
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // "" is protobuf's way to write 0
	return n
}
