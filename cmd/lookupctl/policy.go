package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
)

type policyCmd struct {
	Check policyCheckCmd `cmd:"" help:"Check a directory of CachePolicy files as a lookup pod does."`
}

type policyCheckCmd struct {
	Dir    string        `arg:"" help:"Directory of *.yaml and *.yml files."`
	KeyTTL time.Duration `default:"24h" placeholder:"DURATION" help:"--key-ttl of the pods (${default}): every evictionTTL must be shorter."`
}

// policyReply is the JSON form of a check.
type policyReply struct {
	OK       bool            `json:"ok"`
	Policies []policyRow     `json:"policies"`
	Problems []policyProblem `json:"problems"`
}

// policyRow is one tenant's policy as it works: defaults filled in.
type policyRow struct {
	Tenant               string  `json:"tenant_id"`
	EvictionTTL          string  `json:"eviction_ttl"`
	MinimumPrefixTokens  int64   `json:"minimum_prefix_tokens"`
	MinimumMatchedTokens int64   `json:"minimum_matched_tokens"`
	RoutingFloorScore    float32 `json:"routing_floor_score"`
	LookupTimeoutMS      int64   `json:"lookup_timeout_ms"`
	Affinity             bool    `json:"affinity_routing"`
	ChainMatching        bool    `json:"enable_chain_matching"`
	RequireChain         bool    `json:"require_chain"`
	TenantHot            bool    `json:"enable_tenant_hot"`
	Eviction             string  `json:"eviction"`
}

type policyProblem struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Field string `json:"field"`
	Text  string `json:"text"`
}

func (c *policyCheckCmd) Run(s *session) error {
	if c.KeyTTL <= 0 {
		return usagef("--key-ttl is %v: write that of the pods, such as 24h", c.KeyTTL)
	}
	set, err := policies.Load(c.Dir)
	if err == nil {
		err = set.Within(c.KeyTTL)
	}
	var problems policies.Problems
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	out := policyReply{OK: err == nil, Policies: []policyRow{}, Problems: []policyProblem{}}
	for _, p := range problems {
		out.Problems = append(out.Problems, policyProblem(p))
	}
	for _, tenant := range set.Tenants() {
		out.Policies = append(out.Policies, rowOf(tenant, set.For(tenant)))
	}
	switch {
	case s.json:
		if err := writeJSON(s.out, out); err != nil {
			return err
		}
	case out.OK:
		out.write(s, c.Dir)
	default:
		for _, p := range problems {
			fmt.Fprintln(s.err, printable(p.String()))
		}
	}
	if !out.OK {
		return errReported
	}
	return nil
}

func rowOf(tenant string, p *ranking.Policy) policyRow {
	return policyRow{
		Tenant: tenant, EvictionTTL: p.EvictionTTL.String(),
		MinimumPrefixTokens: p.MinimumPrefixTokens, MinimumMatchedTokens: p.MinimumMatchedTokens,
		RoutingFloorScore: p.RoutingFloorScore, LookupTimeoutMS: p.LookupTimeout.Milliseconds(),
		Affinity: p.Affinity, ChainMatching: p.ChainMatching, RequireChain: p.RequireChain,
		TenantHot: p.TenantHot, Eviction: string(p.Eviction),
	}
}

func (r *policyReply) write(s *session, dir string) {
	fmt.Fprintf(s.out, "OK: %s in %s\n", policyCount(len(r.Policies)), printable(dir))
	if len(r.Policies) == 0 {
		return
	}
	t := table{header: []string{"TENANT", "TTL", "MIN PREFIX", "MIN MATCHED", "FLOOR", "TIMEOUT", "AFFINITY", "CHAIN", "TENANT HOT", "EVICTION"}}
	for _, p := range r.Policies {
		timeout := "-"
		if p.LookupTimeoutMS > 0 {
			timeout = (time.Duration(p.LookupTimeoutMS) * time.Millisecond).String()
		}
		chain := onOff(p.ChainMatching)
		if p.RequireChain {
			chain = "required"
		}
		t.add(cell(p.Tenant), p.EvictionTTL, grouped(p.MinimumPrefixTokens), grouped(p.MinimumMatchedTokens),
			strconv.FormatFloat(float64(p.RoutingFloorScore), 'g', -1, 32), timeout, onOff(p.Affinity), chain, onOff(p.TenantHot), p.Eviction)
	}
	fmt.Fprintln(s.out)
	t.write(s.out, s.width)
}

func policyCount(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return grouped(int64(n)) + " policies"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
