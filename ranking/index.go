package ranking

// Scope is what the index is partitioned by: one model of one tenant.
// Both names are opaque; an empty one is a missing one.
type Scope struct {
	Tenant string
	Model  string
}

// Space separates prefix hashes that must never be mistaken for one another
// within a Scope: the function that made them and the adapter they hold for.
// The empty adapter is the default partition.
type Space struct {
	Scheme  string
	Adapter string
}

// Tier is how far from the GPU a hold lies. A larger value is colder; the zero
// value is "no claim" and stands only in answers that rest on no hold.
type Tier uint8

const (
	// TierNone claims nothing (AFFINITY_HINT, TENANT_HOT).
	TierNone Tier = 0
	// TierT1 is the engine's own cache.
	TierT1 Tier = 1
	// TierT2 is an offload tier on the engine's host.
	TierT2 Tier = 2
	// TierT3 is a remote store.
	TierT3 Tier = 3
	// TierUnknown stands for every value that this version does not know: colder
	// than all that it does, and reported as no claim.
	TierUnknown Tier = 255
)

// TierOfReport turns the wire value of a report into a Tier: 0 means T1, and a
// value outside the list is TierUnknown.
func TierOfReport(wire int32) Tier {
	switch {
	case wire == 0:
		return TierT1
	case wire >= int32(TierT1) && wire <= int32(TierT3):
		return Tier(wire)
	default:
		return TierUnknown
	}
}

// Wire is the value a reply carries; TierUnknown is reported as 0, no claim.
func (t Tier) Wire() int32 {
	if t > TierT3 {
		return 0
	}
	return int32(t)
}

// Stats is the load and cache health that a replica last reported, as it reported it.
type Stats struct {
	MemoryBytes   int64
	HitRate       float32 // finite; expected 0–1, more counts as 1
	Pressure      float32 // finite; expected 0–1, more is saturated
	ClientVersion string
	T2HitTokens   int64 // cumulative
	T2QueryTokens int64 // cumulative
}

// Replica is one engine replica as the index knows it.
type Replica struct {
	ID string
	// Stats holds what was reported at StatsAtMS.
	Stats Stats
	// StatsAtMS is when Stats were reported, Unix ms of the index's clock; 0 = never.
	StatsAtMS int64
	// AliveAtMS is when the replica last gave a sign of life, Unix ms; 0 = never.
	// Ranking does not read it.
	AliveAtMS int64
}

// Hold is one replica's claim on one block.
type Hold struct {
	// Replica is the number of one generation of one replica in its partition.
	Replica uint32
	// SeenMS is when the hold was last reported, Unix ms of the index's clock.
	SeenMS int64
	Tier   Tier
	// Tokens is the running sum up to and including this block, as reported.
	Tokens int32
}

// Query is what a lookup asks of the index.
type Query struct {
	Scope
	Space
	// Hashes is the chain, first block first; for an exact query its one hash.
	Hashes [][]byte
	// Tokens has the request's token count of each block of a chain; nil for an exact query.
	Tokens []int32
	// Exact asks for the holders of Hashes[0], each with its own token count.
	Exact bool
	// TTLMS is how long a hold is fresh, in milliseconds; more than 0.
	TTLMS int64
}

// Evidence is what the index found for a Query: one consistent view. Its slices
// may be shared with the index and other lookups: read them only.
type Evidence struct {
	// NowMS is the index's clock at the time of the view, Unix ms.
	NowMS int64
	// Serving is the serving set of the domain (tenant, model, scheme), sorted by id.
	Serving []Replica
	// Runs has one entry for each replica that matched, in no particular order.
	Runs []Run
	// Census tells why nothing serves the domain. It is filled when Serving is empty.
	Census Census
	// Degraded is set when the view came from memory because the index could not be asked.
	Degraded bool
	// Partial is set when the view does not cover the query, because the index, or a
	// shard of it, could not be asked: Runs are a lower bound, and what is absent from
	// the view may be there. The zero value is a view of everything.
	Partial bool
	// Asked, Cached and Walked count blocks: in the query, answered from the
	// pod's memory, and read from the index.
	Asked, Cached, Walked int
}

// Run is the leading run of a chain, or the exact hold, that one replica has.
type Run struct {
	// Replica indexes Evidence.Serving.
	Replica int
	// Tokens is the sum of the request's counts over the run; of an exact query, the hold's own count.
	Tokens int64
	// SeenMS is the oldest last-seen of the run.
	SeenMS int64
	// Tier is the coldest of the run.
	Tier Tier
	// Blocks is the length of the run; 1 for an exact query.
	Blocks int
}

// Census is where the index stops knowing the keys of a lookup. The zero value
// says that the domain is known.
type Census uint8

const (
	// CensusKnown says that the domain holds something, or nothing is to be diagnosed.
	CensusKnown Census = iota
	// CensusIndexEmpty says that the index holds nothing at all, for anyone.
	CensusIndexEmpty
	// CensusTenantEmpty says that the index holds something, but nothing for the tenant.
	CensusTenantEmpty
	// CensusModelEmpty says that the tenant holds something, but nothing for the model.
	CensusModelEmpty
	// CensusSchemeEmpty says that the (tenant, model) holds something, but nothing under the scheme.
	CensusSchemeEmpty
)

// Report is one replica's additive delta, validated and flattened.
type Report struct {
	Scope
	Replica string
	// Scheme of all entries; with an empty one Entries is ignored.
	Scheme string
	// SeenMS dates holds and stats, Unix ms; 0 = now, and a later time than now counts as now.
	SeenMS  int64
	Entries []Entry
	// Stats replaces the replica's stats; nil leaves them.
	Stats *Stats
}

// Entry is one hold to index.
type Entry struct {
	Adapter string // "" = none
	Hash    []byte
	// Tokens is the running sum up to and including this block, not below 0.
	Tokens int32
	Tier   Tier
}

// EventKind is what an Event says.
type EventKind uint8

const (
	// EventEvicted says that the replica no longer holds Hash in any scheme of the scope;
	// with an Adapter only in that adapter's spaces.
	EventEvicted EventKind = iota + 1
	// EventCleared says that the replica holds nothing and has no stats.
	EventCleared
	// EventAlive says that known stats live on; nothing else changes.
	EventAlive
)

// Event is a change of one replica that is not a hold.
type Event struct {
	Kind EventKind
	Scope
	Replica string
	Hash    []byte
	Adapter string
	// AtMS is when it happened, Unix ms; 0 = now, and a later time than now counts as now.
	AtMS int64
}

// State is what the index knows about one Scope.
type State struct {
	// Replicas with stats, sorted by id.
	Replicas []Replica
	// Prefixes counts distinct (scheme, adapter, hash).
	Prefixes int64
}
