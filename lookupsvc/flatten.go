package lookupsvc

import (
	"math"
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// flattener turns updates into reports. It is reused from update to update; a
// report is valid until the next one.
type flattener struct {
	report ranking.Report
	stats  ranking.Stats
	hashes [][]byte // of a packed chain
	drop   func(flaw)
}

// flatten returns what the index is to take of an update; nil = nothing. Each part
// that is left out is passed to drop once: the update, all entries without a
// scheme, or one entry.
func (fl *flattener) flatten(u *pb.CacheStateUpdate) *ranking.Report {
	if f := addressFlaw(u.GetTenantId(), u.GetModelId(), u.GetReplicaId()); f != flawNone {
		fl.drop(f)
		return nil
	}
	if !namesWithin(u.GetHashScheme()) {
		fl.drop(flawNameTooLong)
		return nil
	}
	fl.report = ranking.Report{
		Scope:   ranking.Scope{Tenant: u.GetTenantId(), Model: u.GetModelId()},
		Replica: u.GetReplicaId(),
		Scheme:  u.GetHashScheme(),
		SeenMS:  unixMS(u.GetTimestampUs()),
		Entries: fl.report.Entries[:0],
	}
	if u.GetHashScheme() == "" && len(u.GetPrefixes()) > 0 {
		fl.drop(flawEmptyScheme)
	} else {
		for _, e := range u.GetPrefixes() {
			fl.entry(e, u.GetAdapterId())
		}
	}
	if st := u.GetStats(); st != nil {
		fl.stats = statsOf(st)
		fl.report.Stats = &fl.stats
	}
	if len(fl.report.Entries) == 0 && fl.report.Stats == nil {
		return nil
	}
	return &fl.report
}

// entry appends the holds of one entry, or none and drops it.
func (fl *flattener) entry(e *pb.PrefixEntry, inherited string) {
	adapter := e.GetAdapterId()
	if adapter == "" {
		adapter = inherited
	}
	if f := entryFlaw(e, adapter); f != flawNone {
		fl.drop(f)
		return
	}
	hold := ranking.Entry{Adapter: adapter, Tier: ranking.TierOfReport(int32(e.GetTier()))}
	var sum int64
	hashes, counts := e.GetBlockHashes(), e.GetBlockTokenCounts()
	if len(e.GetPackedBlockHashes()) > 0 {
		fl.hashes = appendBlocks(fl.hashes[:0], e)
		hashes = fl.hashes
	}
	for i, h := range hashes {
		sum += int64(counts[min(i, len(counts)-1)]) // a packed chain's only count is each block's
		hold.Hash, hold.Tokens = h, int32(min(sum, math.MaxInt32))
		fl.report.Entries = append(fl.report.Entries, hold)
	}
	if len(counts) == 0 || len(e.GetPrefixHash()) > 0 {
		hold.Hash, hold.Tokens = e.GetPrefixHash(), e.GetTokenCount()
		fl.report.Entries = append(fl.report.Entries, hold)
	}
}

// entryFlaw tells what is wrong with an entry; one part of it that is wrong
// drops all of it.
func entryFlaw(e *pb.PrefixEntry, adapter string) flaw {
	if f := chainFlaw(e); f != flawNone {
		return f
	}
	switch {
	case !namesWithin(adapter):
		return flawNameTooLong
	case len(e.GetPrefixHash()) > MaxHashBytes:
		return flawHashTooLong
	case e.GetTokenCount() < 0:
		return flawNegativeCount
	}
	if _, ok := total(e.GetBlockTokenCounts()); !ok {
		return flawNegativeCount
	}
	return flawNone
}

// addressFlaw checks the names that say whose cache is meant.
func addressFlaw(tenant, model, replica string) flaw {
	switch {
	case tenant == ReservedTenant:
		return flawReservedTenant
	case tenant == "" || model == "" || replica == "":
		return flawEmptyName
	case !namesWithin(tenant, model, replica):
		return flawNameTooLong
	default:
		return flawNone
	}
}

// statsOf copies stats with what is not a number as 0. The nested replica id is
// ignored: the update's counts.
func statsOf(st *pb.ReplicaStats) ranking.Stats {
	return ranking.Stats{
		MemoryBytes:   st.GetCacheMemoryBytes(),
		HitRate:       finite(st.GetHitRate()),
		Pressure:      finite(st.GetPressure()),
		ClientVersion: cut(st.GetClientVersion()),
		T2HitTokens:   st.GetT2HitTokens(),
		T2QueryTokens: st.GetT2QueryTokens(),
	}
}

func finite(f float32) float32 {
	if v := float64(f); math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return f
}

// unixMS turns a producer's microseconds into the index's milliseconds. 0 means
// now in both, so a time that rounds to 0 or lies before 1970 becomes 1: long ago.
func unixMS(us int64) int64 {
	if us == 0 {
		return 0
	}
	return max(1, us/int64(time.Millisecond/time.Microsecond))
}
