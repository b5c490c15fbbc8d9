package client

import (
	"fmt"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// packUpdate is u with its entries' chains in one piece, where they fit. It tells
// whether any is packed now.
func packUpdate(u *pb.CacheStateUpdate) (*pb.CacheStateUpdate, bool) {
	return withEntries(u, func(e *pb.PrefixEntry) (*pb.PrefixEntry, bool) {
		if len(e.GetPackedBlockHashes()) > 0 {
			return e, true
		}
		joined, width, counts, ok := pack(e.GetBlockHashes(), e.GetBlockTokenCounts())
		if !ok {
			return e, false
		}
		packed := sameEntry(e)
		packed.BlockTokenCounts, packed.PackedBlockHashes, packed.PackedHashBytes = counts, joined, width
		return packed, true
	})
}

// unpackUpdate is u with its entries' chains hash by hash.
func unpackUpdate(u *pb.CacheStateUpdate) *pb.CacheStateUpdate {
	plain, _ := withEntries(u, func(e *pb.PrefixEntry) (*pb.PrefixEntry, bool) {
		if len(e.GetPackedBlockHashes()) == 0 {
			return e, false
		}
		one := sameEntry(e)
		one.BlockHashes, one.BlockTokenCounts = unpack(e.GetPackedBlockHashes(), e.GetPackedHashBytes(), e.GetBlockTokenCounts())
		return one, true
	})
	return plain
}

// withEntries is u with each entry changed, or u itself if none is. It tells whether
// change said so of any.
func withEntries(u *pb.CacheStateUpdate, change func(*pb.PrefixEntry) (*pb.PrefixEntry, bool)) (*pb.CacheStateUpdate, bool) {
	var entries []*pb.PrefixEntry
	said := false
	for i, e := range u.GetPrefixes() {
		changed, yes := change(e)
		said = said || yes
		if changed != e && entries == nil {
			entries = append(make([]*pb.PrefixEntry, 0, len(u.GetPrefixes())), u.GetPrefixes()[:i]...)
		}
		if entries != nil {
			entries = append(entries, changed)
		}
	}
	if entries == nil {
		return u, said
	}
	c := sameUpdate(u)
	c.Prefixes = entries
	return c, said
}

// sameUpdate shares u's fields.
func sameUpdate(u *pb.CacheStateUpdate) *pb.CacheStateUpdate {
	return &pb.CacheStateUpdate{
		ReplicaId: u.GetReplicaId(), ModelId: u.GetModelId(), TenantId: u.GetTenantId(), HashScheme: u.GetHashScheme(),
		TimestampUs: u.GetTimestampUs(), Prefixes: u.GetPrefixes(), Stats: u.GetStats(), AdapterId: u.GetAdapterId(),
	}
}

// sameEntry shares e's fields, but for those of a chain.
func sameEntry(e *pb.PrefixEntry) *pb.PrefixEntry {
	return &pb.PrefixEntry{
		PrefixHash: e.GetPrefixHash(), TokenCount: e.GetTokenCount(), Tier: e.GetTier(), AdapterId: e.GetAdapterId(),
	}
}

// sensibleUpdate checks what could not be turned into the form that a pod takes, and
// what no pod would receive.
func sensibleUpdate(u *pb.CacheStateUpdate) error {
	for i, e := range u.GetPrefixes() {
		if len(e.GetPackedBlockHashes()) == 0 {
			continue
		}
		if len(e.GetBlockHashes()) > 0 {
			return fmt.Errorf("%w: entry %d: set block_hashes or packed_block_hashes, not both", ErrRequest, i)
		}
		if err := checkPacked(e.GetPackedBlockHashes(), e.GetPackedHashBytes(), e.GetBlockTokenCounts()); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}
