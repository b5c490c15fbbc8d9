package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

type explainCmd struct {
	lookupFlags
	redisFlags
	PolicyDir string `placeholder:"DIR" help:"Directory of CachePolicy files, the pods' own; none = the default policy for everyone."`
	knobFlags
	All bool `help:"List every replica, not only the first twenty."`
}

// knobFlags are those of lookupd that a decision depends on, with the same names and defaults.
type knobFlags struct {
	EngineBlockSize int           `group:"knobs of the pods" default:"16" placeholder:"TOKENS" help:"Tokens in a block of the engines, for --tokens (${default})."`
	LookupTimeout   time.Duration `group:"knobs of the pods" default:"100ms" placeholder:"DURATION" help:"Longest time a lookup may take (${default})."`
	PressureWeight  float32       `group:"knobs of the pods" default:"1.0" placeholder:"WEIGHT" help:"How much of its score a saturated replica loses (${default})."`
	SLOTightTTFT    int32         `name:"slo-tight-ttft-ms" group:"knobs of the pods" default:"200" placeholder:"MS" help:"A request that wants its first token sooner favours fresh holds (${default})."`
	SLOTightBias    float32       `name:"slo-tight-bias" group:"knobs of the pods" default:"1.0" placeholder:"BIAS" help:"How much it favours them (${default})."`
	HotMinHitRate   float32       `name:"tenant-hot-min-hit-rate" group:"knobs of the pods" default:"0.1" placeholder:"RATE" help:"Least hit rate of a TENANT_HOT replica (${default})."`
	TenantHotMaxAge time.Duration `group:"knobs of the pods" default:"5m" placeholder:"DURATION" help:"Stats of this age say nothing about warmth (${default})."`
}

// check finds what a pod would refuse to start with.
func (f *knobFlags) check() error {
	for _, v := range []struct {
		flag  string
		value float32
	}{
		{"pressure-weight", f.PressureWeight}, {"slo-tight-bias", f.SLOTightBias}, {"tenant-hot-min-hit-rate", f.HotMinHitRate},
	} {
		if !(v.value >= 0) || v.value > math.MaxFloat32 {
			return usagef("--%s is %v; give a number of 0 or more", v.flag, v.value)
		}
	}
	switch {
	case f.EngineBlockSize < 1 || f.EngineBlockSize > lookupsvc.MaxTokenIDs:
		return usagef("--engine-block-size is %d; give the engines' own, 1 to %d", f.EngineBlockSize, lookupsvc.MaxTokenIDs)
	case f.LookupTimeout <= 0:
		return usagef("--lookup-timeout is %v; give more than 0, such as 100ms", f.LookupTimeout)
	case f.SLOTightTTFT < 0 || f.TenantHotMaxAge < 0:
		return usagef("--slo-tight-ttft-ms and --tenant-hot-max-age must not be negative; 0 = off")
	}
	return nil
}

func (f *knobFlags) knobs() ranking.Knobs {
	return ranking.Knobs{
		PressureWeight: f.PressureWeight, SLOTightTTFTMS: f.SLOTightTTFT, SLOTightBias: f.SLOTightBias,
		TenantHotMinHitRate: f.HotMinHitRate, TenantHotMaxAge: f.TenantHotMaxAge,
	}
}

// Help is shown under the usage of the command.
func (explainCmd) Help() string {
	return `The prompt is named as for lookup. The decision is made here, by the code of a lookup
pod, on what Redis holds now: give the policies and knobs that the pods run with.
With --server the pod is asked too, and what it says differently is shown.

  lookupctl explain --redis redis://redis:6379 --policy-dir policies/ --tenant demo --model llama --scheme vllm --tokens @ids.txt`
}

func (c *explainCmd) Run(s *session) error {
	if c.Redis == "" {
		return usagef("--redis is missing: explain reads the index itself; lookup asks a pod")
	}
	if err := c.check(); err != nil {
		return err
	}
	req, err := c.request(s)
	if err != nil {
		return err
	}
	var set *policies.Set
	if c.PolicyDir != "" {
		if set, err = policies.Load(c.PolicyDir); err != nil {
			return fmt.Errorf("--policy-dir: %w; lookupctl policy check lists all that is wrong", err)
		}
	}
	rdb, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	x := &explainer{rdb: rdb, req: req, knobs: c.knobs(), blockSize: c.EngineBlockSize, timeout: c.LookupTimeout, within: s.timeout}
	if x.index, x.shards, err = c.openIndex(ctx, rdb, store.Options{}); err != nil {
		return err
	}
	x.setPolicy(set, c.PolicyDir)
	out, err := x.explain(ctx)
	if err != nil {
		return fmt.Errorf("--redis %s: %w", store.Redacted(c.Redis), err)
	}
	out.Redis = store.Redacted(c.Redis)
	if s.named {
		out.Pod = x.compare(s, out)
	}
	if s.json {
		return writeJSON(s.out, out)
	}
	out.write(s, c.All)
	return nil
}
