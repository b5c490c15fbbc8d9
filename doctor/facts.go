package doctor

import (
	"time"

	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// Facts is all that the gatherers found. A nil part was not asked for.
type Facts struct {
	Redis    *RedisFacts
	Index    *IndexFacts
	Pods     []PodFacts
	GRPC     []GRPCFacts
	Sidecars []SidecarFacts
	Policies *PolicyFacts
	// Gaps tells what was left out for lack of time or by a bound.
	Gaps []string

	// SweepInterval and KeyTTL are what the pods run with; EvictionTTL is a tenant's.
	SweepInterval, KeyTTL time.Duration
	// Shards is what the components were started with; 0 = not told.
	Shards int
}

// evictionTTL of a tenant, by the policies that were given.
func (f *Facts) evictionTTL(tenant string) time.Duration { return f.policy(tenant).EvictionTTL }

func (f *Facts) policy(tenant string) *ranking.Policy {
	if f.Policies == nil {
		return (*policies.Set)(nil).For(tenant)
	}
	return f.Policies.Set.For(tenant)
}

// RedisFacts are of the servers.
type RedisFacts struct {
	// Name is the URL without its secrets.
	Name string
	// Err is why none could be asked.
	Err error
	// Cluster: the client speaks to a Cluster.
	Cluster bool
	Nodes   []NodeFacts
	// State of a Cluster and its slots, as one node tells it.
	State                             string
	SlotsAssigned, SlotsOK, SlotsFail int
	// ScriptErr is why a trivial script was refused.
	ScriptErr error
	// User is whose rights were judged: the one that was Named, or our own.
	User  string
	Named bool
	// DeniedReads and DeniedWrites are commands of a pod that the user's ACL refuses,
	// if RightsErr is nil.
	DeniedReads, DeniedWrites []string
	RightsErr                 error
	// ReadOnly: our own user reads everything and writes nothing, as an operator's should.
	ReadOnly bool
}

// NodeFacts are of one server. Fields that it does not tell are zero.
type NodeFacts struct {
	Addr           string
	Err            error
	Version        string
	Role           string // master, slave, or unknown
	MaxPolicy      string
	Used, Max      int64 // bytes; Max 0 = no limit
	System         int64 // bytes of the machine
	Evicted        int64 // keys, since it started
	Loading        bool
	LinkDown       bool // a replica without its primary
	ClusterEnabled bool
	AOF            bool
	SaveFailed     bool // the last background save
	RDBChanges     int64
	// Skew is how far its clock is ahead of ours; Uncertain by how much that can be off.
	Skew, Uncertain time.Duration
}

// IndexFacts are of the keys.
type IndexFacts struct {
	Layout  Layout
	Catalog Catalog
	// NowMS is the clock of the Redis that was asked.
	NowMS      int64
	Partitions []PartitionFacts
}

// PartitionFacts are of one partition.
type PartitionFacts struct {
	store.Partition
	Err error
	// Replicas by id.
	Replicas map[string]store.ReplicaRecord
	// Counts by scheme and number.
	Counts []Count
	Spaces []SpaceFacts
	// Dirty and SweptMS (0 = never) are of the head.
	Dirty   bool
	SweptMS int64
	// LogFirstMS is the time of the oldest log entry that is kept; 0 = none.
	LogFirstMS int64
	LogLen     int64
	// Garbage has one line for each value or key that cannot be read.
	Garbage []string
}

// Count is a field of the serving counts.
type Count struct {
	Scheme uint16
	Number uint32
	Holds  int64
}

// SpaceFacts are of one (scheme, adapter) of a partition.
type SpaceFacts struct {
	ranking.Space
	Index  uint16
	Blocks int64
	// Samples are the records of some blocks, at random.
	Samples [][]ranking.Hold
}

// PolicyFacts are of the policy directory.
type PolicyFacts struct {
	Dir string
	Set *policies.Set
	// Err is why there is no set; Problems has its lines if the files are at fault.
	Err      error
	Problems policies.Problems
}

// PodFacts are of one lookup pod's HTTP port.
type PodFacts struct {
	Addr  string
	Err   error
	Ready bool
	// Says is the body of /readyz.
	Says string
	// Metrics are nil if /metrics could not be read.
	Metrics *Metrics
}

// GRPCFacts are of one lookup pod's gRPC port.
type GRPCFacts struct {
	Addr string
	Err  error
	// Refused: the pod answers, and Err says that it does not know us.
	Refused bool
	// Health of the pod as a whole, of its service and of its index.
	Health, Service, Index string
	// Reason that a probe got, and how long it took.
	Reason string
	Took   time.Duration
}

// SidecarFacts are of one sidecar's HTTP port.
type SidecarFacts struct {
	Addr    string
	Err     error
	Ready   bool
	Says    string
	Metrics *Metrics
}
