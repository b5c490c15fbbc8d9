package replay

import pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"

// updateOf says what an engine holds after a request, or nil if there is nothing to say.
//
// A chain in a report begins at the root: its token counts are running sums. So only
// a whole chain is sent as one. A newly stored suffix goes block by block, each with
// its running sum, which costs the tier no more than the blocks that are new.
func (r *run) updateOf(e *engine, c *chain, d *Delta) *pb.CacheStateUpdate {
	update := r.emptyUpdate(e)
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
func (r *run) emptyUpdate(e *engine) *pb.CacheStateUpdate {
	update := &pb.CacheStateUpdate{
		ReplicaId:  e.id,
		TenantId:   r.o.Tenant,
		ModelId:    r.o.Model,
		HashScheme: r.o.Scheme,
		AdapterId:  r.o.Adapter,
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
