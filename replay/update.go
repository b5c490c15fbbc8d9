package replay

import (
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// updateOf says what an engine holds after a request, or nil if there is nothing to say.
//
// A chain in a report begins at the root: its token counts are running sums. So only
// a whole chain is sent as one. A newly stored suffix goes block by block, each with
// its running sum, which costs the tier no more than the blocks that are new.
func (r *run) updateOf(i int, e *engine, c *chain, d *Delta) *pb.CacheStateUpdate {
	update := r.emptyUpdate(i, e)
	resident := d.Reused + d.Stored
	switch {
	case resident == 0 || d.Stored == 0 && !r.o.WholeChains:
	case d.Reused == 0 || r.o.WholeChains:
		update.Prefixes = []*pb.PrefixEntry{{
			BlockHashes:      c.hashes[:resident],
			BlockTokenCounts: c.counts[:resident],
			Tier:             pb.CacheTier_CACHE_TIER_T1,
		}}
	default:
		sum := c.tokens(d.Reused)
		for i := d.Reused; i < resident; i++ {
			sum += int64(c.counts[i])
			update.Prefixes = append(update.Prefixes, &pb.PrefixEntry{
				PrefixHash: c.hashes[i],
				TokenCount: int32(sum),
				Tier:       pb.CacheTier_CACHE_TIER_T1,
			})
		}
	}
	if update.Prefixes == nil && update.Stats == nil {
		return nil
	}
	return update
}

// emptyUpdate has the engine's keys and, if engines report load, its stats; e.mu is held.
func (r *run) emptyUpdate(i int, e *engine) *pb.CacheStateUpdate {
	update := &pb.CacheStateUpdate{
		ReplicaId:   e.id,
		TenantId:    r.o.Tenant,
		ModelId:     r.o.Model,
		HashScheme:  r.o.Scheme,
		AdapterId:   r.o.Adapter,
		TimestampUs: r.stampUS(i),
	}
	if r.o.Slots > 0 {
		update.Stats = &pb.ReplicaStats{
			HitRate:       e.hitRate(),
			Pressure:      pressure(len(e.running), r.o.Slots),
			ClientVersion: "replay",
		}
	}
	return update
}

// stampUS dates what request i changed. Among replicas that match alike the fresher
// hold wins, so dates decide where requests go, and those of the wall clock would
// make every run another one. Requests that do not wait for their time are therefore
// dated one after another in the moments before the replay began: later requests are
// fresher, by the same amount in each run. 0 = now.
func (r *run) stampUS(i int) int64 {
	if r.o.Speed > 0 {
		return 0
	}
	n := len(r.trace)
	back := time.Duration(n-i) * min(time.Millisecond, maxBackdate/time.Duration(n))
	return r.started.Add(-back).UnixMicro()
}

// maxBackdate is little beside any evictionTTL in use.
const maxBackdate = 30 * time.Second
