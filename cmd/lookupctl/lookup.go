package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

type lookupCmd struct{ lookupFlags }

// lookupFlags make a lookup.
type lookupFlags struct {
	scopeFlags
	Scheme    string `placeholder:"NAME" help:"Hash scheme; lookups match only what was reported under the same one."`
	Adapter   string `placeholder:"NAME" help:"LoRA adapter; none = the base model."`
	SLOTTFTMS int32  `name:"slo-ttft-ms" placeholder:"N" help:"Time to first token that the request is after, milliseconds."`
	promptFlags
	Text    string `placeholder:"PROMPT" help:"The prompt as text; the pod needs a tokenizer for the model."`
	Request string `placeholder:"FILE" help:"A LookupRouteRequest as JSON, - for standard input; bytes are base64. Flags fill what it leaves out."`
}

// Help is shown under the usage of the command.
func (lookupCmd) Help() string {
	return `Name the prompt by a chain of block hashes, an exact prefix hash, its token ids
(the pod cuts and hashes them), or its text.

  lookupctl lookup --tenant demo --model llama --scheme vllm --chain ea06fc71a5ee6e88 --block-tokens 16
  lookupctl lookup --tenant demo --model llama --scheme vllm --tokens @ids.txt`
}

// lookupReply is the JSON form of an answer.
type lookupReply struct {
	Reason      string  `json:"reason_code"`
	Meaning     string  `json:"meaning"`
	Scores      []score `json:"replica_scores"`
	LatencyUS   int64   `json:"lookup_latency_us"`
	RoundTripUS int64   `json:"round_trip_us"`
	AdapterID   string  `json:"adapter_id"`
}

type score struct {
	ReplicaID string  `json:"replica_id"`
	Score     float32 `json:"score"`
	Matched   int32   `json:"matched_tokens"`
	HitProb   float32 `json:"estimated_cache_hit_prob"`
	Tier      string  `json:"tier"`
}

func (c *lookupCmd) Run(s *session) error {
	req, err := c.request(s)
	if err != nil {
		return err
	}
	var reply *pb.LookupRouteResponse
	start := time.Now()
	err = s.call(func(ctx context.Context, client pb.InferenceCacheClient) (err error) {
		reply, err = client.LookupRoute(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	out := replyOf(req, reply, time.Since(start))
	if s.json {
		return writeJSON(s.out, out)
	}
	out.write(s)
	return nil
}

func (c *lookupFlags) request(s *session) (*pb.LookupRouteRequest, error) {
	req := &pb.LookupRouteRequest{}
	if c.Request != "" {
		if c.promptFlags != (promptFlags{}) || c.Text != "" {
			return nil, usagef("--request carries the prompt; give no --chain, --prefix-hash, --tokens or --text beside it")
		}
		text, err := readInput("--request", c.Request, s.in)
		if err != nil {
			return nil, err
		}
		if err := protojson.Unmarshal(text, req); err != nil {
			return nil, fmt.Errorf("--request %s: %w; it must be a LookupRouteRequest as JSON", c.Request, err)
		}
	} else if err := c.fromFlags(req, s); err != nil {
		return nil, err
	}
	fill(&req.TenantId, c.Tenant)
	fill(&req.ModelId, c.Model)
	fill(&req.HashScheme, c.Scheme)
	fill(&req.AdapterId, c.Adapter)
	if c.SLOTTFTMS != 0 && req.GetSlo() == nil {
		req.Slo = &pb.SLO{TtftMs: c.SLOTTFTMS}
	}
	return req, nil
}

func (c *lookupFlags) fromFlags(req *pb.LookupRouteRequest, s *session) error {
	if c.Tokens != "" && c.BlockTokens != 0 {
		return usagef("--block-tokens goes with --chain; token ids are cut by the pod's --engine-block-size")
	}
	if c.BlockTokens != 0 && c.Chain == "" {
		return usagef("--block-tokens goes with --chain")
	}
	p, err := c.resolve(s.in)
	if err != nil {
		return err
	}
	if len(p.hashes) == 0 && p.prefixHash == nil && p.tokens == nil && c.Text == "" {
		return usagef("no prompt; give --chain, --prefix-hash, --tokens, --text or --request")
	}
	req.BlockHashes, req.BlockTokenCounts = p.hashes, p.counts
	req.PrefixHash, req.PrefixTokenCount = p.prefixHash, p.prefixTokens
	req.TokenIds, req.PromptText = p.tokens, c.Text
	return nil
}

// fill sets a field that is still empty.
func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func replyOf(req *pb.LookupRouteRequest, reply *pb.LookupRouteResponse, roundTrip time.Duration) *lookupReply {
	out := &lookupReply{
		Reason:      reply.GetReasonCode(),
		Meaning:     meaning(req, reply),
		Scores:      []score{},
		LatencyUS:   reply.GetLookupLatencyUs(),
		RoundTripUS: roundTrip.Microseconds(),
		AdapterID:   reply.GetAdapterId(),
	}
	for _, r := range reply.GetReplicaScores() {
		out.Scores = append(out.Scores, score{
			ReplicaID: r.GetReplicaId(), Score: r.GetScore(), Matched: r.GetMatchedTokens(),
			HitProb: r.GetEstimatedCacheHitProb(), Tier: tierName(r.GetTier()),
		})
	}
	return out
}

func (r *lookupReply) write(s *session) {
	fmt.Fprintln(s.out, wrap(fmt.Sprintf("%s: %s, %s in the pod, %s round trip", cell(r.Reason), plural(len(r.Scores), "replica"),
		duration(float64(r.LatencyUS)), duration(float64(r.RoundTripUS))), s.width))
	if len(r.Scores) > 0 {
		t := table{header: []string{"RANK", "REPLICA", "SCORE", "MATCHED TOKENS", "HIT PROBABILITY", "TIER"}, flexible: 1}
		for i, sc := range r.Scores {
			t.add(strconv.Itoa(i+1), cell(sc.ReplicaID), decimal(sc.Score), grouped(int64(sc.Matched)), decimal(sc.HitProb), sc.Tier)
		}
		fmt.Fprintln(s.out)
		t.write(s.out, s.width)
	}
	fmt.Fprintf(s.out, "\n%s\n", wrap(r.Meaning, s.width))
}

func decimal(f float32) string { return strconv.FormatFloat(float64(f), 'f', 3, 32) }

// tierName is T1, T2, T3, or - for no claim.
func tierName(t pb.CacheTier) string {
	switch t {
	case pb.CacheTier_CACHE_TIER_T1:
		return "T1"
	case pb.CacheTier_CACHE_TIER_T2:
		return "T2"
	case pb.CacheTier_CACHE_TIER_T3:
		return "T3"
	default:
		return "-"
	}
}

// duration writes microseconds in the unit that suits them.
func duration(us float64) string {
	switch {
	case us < 1000:
		return strconv.FormatFloat(us, 'f', 0, 64) + " µs"
	case us < 1e6:
		return strconv.FormatFloat(us/1e3, 'f', 2, 64) + " ms"
	default:
		return strconv.FormatFloat(us/1e6, 'f', 2, 64) + " s"
	}
}
