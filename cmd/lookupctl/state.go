package main

import (
	"context"
	"fmt"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

type stateCmd struct{ scopeFlags }

// stateReply is the JSON form of what the index knows.
type stateReply struct {
	Tenant   string         `json:"tenant_id"`
	Model    string         `json:"model_id"`
	Prefixes int64          `json:"total_prefixes"`
	Replicas []replicaStats `json:"replicas"`
}

type replicaStats struct {
	ReplicaID     string  `json:"replica_id"`
	HitRate       float32 `json:"hit_rate"`
	Pressure      float32 `json:"pressure"`
	MemoryBytes   int64   `json:"cache_memory_bytes"`
	T2HitTokens   int64   `json:"t2_hit_tokens"`
	T2QueryTokens int64   `json:"t2_query_tokens"`
	ClientVersion string  `json:"client_version"`
}

func (c *stateCmd) Run(s *session) error {
	if err := c.required(); err != nil {
		return err
	}
	var reply *pb.GetCacheStateResponse
	err := s.call(func(ctx context.Context, client pb.InferenceCacheClient) (err error) {
		reply, err = client.GetCacheState(ctx, &pb.GetCacheStateRequest{TenantId: c.Tenant, ModelId: c.Model})
		return err
	})
	if err != nil {
		return err
	}
	out := stateReply{
		Tenant: c.Tenant, Model: c.Model,
		Prefixes: reply.GetSummary().GetTotalPrefixes(), Replicas: []replicaStats{},
	}
	for _, r := range reply.GetReplicas() {
		out.Replicas = append(out.Replicas, replicaStats{
			ReplicaID: r.GetReplicaId(), HitRate: r.GetHitRate(), Pressure: r.GetPressure(),
			MemoryBytes: r.GetCacheMemoryBytes(), T2HitTokens: r.GetT2HitTokens(),
			T2QueryTokens: r.GetT2QueryTokens(), ClientVersion: r.GetClientVersion(),
		})
	}
	if s.json {
		return writeJSON(s.out, out)
	}
	out.write(s)
	return nil
}

func (r *stateReply) write(s *session) {
	fmt.Fprintf(s.out, "tenant %s, model %s: %s distinct prefix keys, %s with stats\n",
		cell(r.Tenant), cell(r.Model), grouped(r.Prefixes), plural(len(r.Replicas), "replica"))
	switch {
	case r.Prefixes == 0 && len(r.Replicas) == 0:
		fmt.Fprintf(s.out, "\n%s\n", wrap("The index knows nothing here. If engines run, check that their sidecars report under this very tenant and model.", s.width))
		return
	case len(r.Replicas) == 0:
		fmt.Fprintf(s.out, "\n%s\n", wrap("No replica has reported load; lookups rank without pressure, and TENANT_HOT cannot occur.", s.width))
		return
	}
	t := table{header: []string{"REPLICA", "HIT RATE", "PRESSURE", "CACHE MEMORY", "OFFLOAD HITS", "SIDECAR"}}
	for _, st := range r.Replicas {
		offload := "-"
		if st.T2QueryTokens > 0 {
			offload = percent(float64(st.T2HitTokens) / float64(st.T2QueryTokens))
		}
		t.add(cell(st.ReplicaID), percent(float64(st.HitRate)), decimal(st.Pressure), size(st.MemoryBytes), offload, cell(st.ClientVersion))
	}
	fmt.Fprintln(s.out)
	t.write(s.out, s.width)
}

// size writes bytes in the unit that suits them.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, suffix := float64(n), ""
	for _, suffix = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if value /= unit; value < unit {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", value, suffix)
}
