package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protojson"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
)

// defaultBlockTokens is the block size of engines, and the pod's own default.
const defaultBlockTokens = 16

type reportCmd struct {
	scopeFlags
	Replica string `placeholder:"ID" help:"The engine replica that holds it."`
	Scheme  string `placeholder:"NAME" help:"Hash scheme of what it holds."`
	Adapter string `placeholder:"NAME" help:"LoRA adapter; none = the base model."`
	Tier    string `enum:"t1,t2,t3" default:"t1" help:"Where the blocks lie: t1 GPU, t2 the host's offload tier, t3 a remote store."`
	promptFlags
	statsFlags
	Update string `placeholder:"FILE" help:"CacheStateUpdates as JSON objects one after another, - for standard input, instead of the flags; bytes are base64."`
}

type statsFlags struct {
	HitRate       *float32 `group:"Load" placeholder:"0…1" help:"Share of prompt tokens that the replica found in its cache."`
	Pressure      *float32 `group:"Load" placeholder:"0…1" help:"How saturated the replica is."`
	MemoryBytes   *int64   `group:"Load" placeholder:"N" help:"Memory of its KV cache."`
	T2HitTokens   *int64   `group:"Load" name:"t2-hit-tokens" env:"LOOKUPCTL_T2_HIT_TOKENS" placeholder:"N" help:"Tokens found in the offload tier, cumulative."`
	T2QueryTokens *int64   `group:"Load" name:"t2-query-tokens" env:"LOOKUPCTL_T2_QUERY_TOKENS" placeholder:"N" help:"Tokens looked for in the offload tier, cumulative."`
	ClientVersion *string  `group:"Load" placeholder:"TEXT" help:"Version of what reports."`
}

// Help is shown under the usage of the command.
func (reportCmd) Help() string {
	return `Adds to what the index knows; what is left out stays as it was. Token ids are cut
into blocks of --block-tokens (16) and hashed as sidecars do it.

  lookupctl report --tenant demo --model llama --scheme vllm --replica engine-0 --chain ea06fc71a5ee6e88 --block-tokens 16
  lookupctl report --tenant demo --model llama --replica engine-0 --hit-rate 0.4 --pressure 0.9`
}

// reportReply is the JSON form of an acknowledged report.
type reportReply struct {
	Accepted bool `json:"accepted"`
	Updates  int  `json:"updates"`
	Holds    int  `json:"holds"`
	Stats    int  `json:"stats"`
}

func (c *reportCmd) Run(s *session) error {
	updates, err := c.updates(s)
	if err != nil {
		return err
	}
	out := reportReply{Updates: len(updates)}
	for _, u := range updates {
		if err := flawed(u); err != nil {
			return err
		}
		for _, p := range u.GetPrefixes() {
			out.Holds += len(p.GetBlockHashes())
			if len(p.GetPrefixHash()) > 0 {
				out.Holds++
			}
		}
		if u.GetStats() != nil {
			out.Stats++
		}
	}
	err = s.call(func(ctx context.Context, client pb.InferenceCacheClient) error {
		stream, err := client.ReportCacheState(ctx)
		if err != nil {
			return err
		}
		for _, u := range updates {
			if err := stream.Send(u); err != nil {
				break // why is what CloseAndRecv says
			}
		}
		ack, err := stream.CloseAndRecv()
		out.Accepted = ack.GetAccepted()
		return err
	})
	if err != nil {
		return err
	}
	if s.json {
		return writeJSON(s.out, out)
	}
	fmt.Fprintf(s.out, "accepted: %s, %s of stats\n", plural(out.Holds, "hold"), plural(out.Stats, "record"))
	return nil
}

// flawed finds what the tier would accept and drop in silence.
func flawed(u *pb.CacheStateUpdate) error {
	for _, name := range []struct{ field, value string }{
		{"replica_id", u.GetReplicaId()}, {"tenant_id", u.GetTenantId()}, {"model_id", u.GetModelId()},
	} {
		if name.value == "" {
			return usagef("%s is empty; the tier drops what comes without it", name.field)
		}
	}
	if u.GetTenantId() == reservedTenant {
		return usagef("tenant %s is reserved for probes; the tier drops what is reported for it", reservedTenant)
	}
	if u.GetHashScheme() == "" && len(u.GetPrefixes()) > 0 {
		return usagef("the hash scheme is empty; the tier indexes no prefix without one: give --scheme")
	}
	for i, p := range u.GetPrefixes() {
		if len(p.GetBlockHashes()) != len(p.GetBlockTokenCounts()) {
			return usagef("prefixes[%d] has %s but %s; the tier drops an entry of unequal lengths",
				i, plural(len(p.GetBlockHashes()), "block hash"), plural(len(p.GetBlockTokenCounts()), "token count"))
		}
	}
	return droppedFor(lookupsvc.DropsOfUpdate(u))
}

// droppedFor refuses what the pod itself would drop.
func droppedFor(drops []lookupsvc.Drop) error {
	if len(drops) == 0 {
		return nil
	}
	return usagef("the tier would accept this and drop it (%s): %s", drops[0].Reason, drops[0].Remedy)
}

func (c *reportCmd) updates(s *session) ([]*pb.CacheStateUpdate, error) {
	if c.Update == "" {
		u, err := c.fromFlags(s)
		return []*pb.CacheStateUpdate{u}, err
	}
	if c.promptFlags != (promptFlags{}) || c.statsFlags != (statsFlags{}) {
		return nil, usagef("--update carries everything; give no prompt and no load beside it")
	}
	text, err := readInput("--update", c.Update, s.in)
	if err != nil {
		return nil, err
	}
	updates, err := parseUpdates(text)
	if err != nil {
		return nil, fmt.Errorf("--update %s: %w", c.Update, err)
	}
	for _, u := range updates {
		fill(&u.TenantId, c.Tenant)
		fill(&u.ModelId, c.Model)
		fill(&u.ReplicaId, c.Replica)
		fill(&u.HashScheme, c.Scheme)
		fill(&u.AdapterId, c.Adapter)
	}
	return updates, nil
}

func parseUpdates(text []byte) (updates []*pb.CacheStateUpdate, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var object json.RawMessage
		if err := dec.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("update %d: %w", len(updates)+1, err)
		}
		u := &pb.CacheStateUpdate{}
		if err := protojson.Unmarshal(object, u); err != nil {
			return nil, fmt.Errorf("update %d: %w; it must be a CacheStateUpdate as JSON", len(updates)+1, err)
		}
		updates = append(updates, u)
	}
	if len(updates) == 0 {
		return nil, errors.New("no update in it")
	}
	return updates, nil
}

func (c *reportCmd) fromFlags(s *session) (*pb.CacheStateUpdate, error) {
	if c.BlockTokens != 0 && c.Chain == "" && c.Tokens == "" {
		return nil, usagef("--block-tokens goes with --chain or --tokens")
	}
	p, err := c.resolve(s.in)
	if err != nil {
		return nil, err
	}
	if len(p.tokens) > 0 {
		size := c.BlockTokens
		if size == 0 {
			size = defaultBlockTokens
		}
		if err := p.fingerprint(size); err != nil {
			return nil, err
		}
	}
	u := &pb.CacheStateUpdate{
		ReplicaId: c.Replica, TenantId: c.Tenant, ModelId: c.Model, HashScheme: c.Scheme, AdapterId: c.Adapter,
	}
	if len(p.hashes) > 0 || p.prefixHash != nil {
		u.Prefixes = []*pb.PrefixEntry{{
			PrefixHash: p.prefixHash, TokenCount: p.prefixTokens,
			BlockHashes: p.hashes, BlockTokenCounts: p.counts,
			Tier: pb.CacheTier(c.Tier[1] - '0'),
		}}
	}
	if u.Stats, err = c.stats(); err != nil {
		return nil, err
	}
	if u.GetPrefixes() == nil && u.GetStats() == nil {
		return nil, usagef("nothing to report; give --chain, --prefix-hash, --tokens or --update, or load such as --pressure 0.5")
	}
	return u, nil
}

// stats is nil when no flag speaks of load.
func (f *statsFlags) stats() (*pb.ReplicaStats, error) {
	if *f == (statsFlags{}) {
		return nil, nil
	}
	for name, v := range map[string]*float32{"--hit-rate": f.HitRate, "--pressure": f.Pressure} {
		if v != nil && (math.IsNaN(float64(*v)) || *v < 0 || *v > 1) {
			return nil, usagef("%s is %v; give from 0 to 1", name, *v)
		}
	}
	for name, v := range map[string]*int64{
		"--memory-bytes": f.MemoryBytes, "--t2-hit-tokens": f.T2HitTokens, "--t2-query-tokens": f.T2QueryTokens,
	} {
		if v != nil && *v < 0 {
			return nil, usagef("%s is %d; give 0 or more", name, *v)
		}
	}
	return &pb.ReplicaStats{
		HitRate: valueOf(f.HitRate), Pressure: valueOf(f.Pressure), CacheMemoryBytes: valueOf(f.MemoryBytes),
		T2HitTokens: valueOf(f.T2HitTokens), T2QueryTokens: valueOf(f.T2QueryTokens), ClientVersion: valueOf(f.ClientVersion),
	}, nil
}

func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
