package client

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// plainFor is how long chains stay plain after a reply of a pod that does not know
// the packed form. In a tier of mixed versions such replies come again and again.
const plainFor = time.Minute

// packing is what replies have told about the pods.
type packing struct {
	never bool // by the caller's wish
	// understood is set while the last that was heard is that packed chains are taken.
	understood atomic.Bool
	// plainUntil is until when they are not sent whatever is heard, Unix ns.
	plainUntil atomic.Int64
}

func (p *packing) on() bool { return p.understood.Load() && !p.never }

// saw takes note of a reply.
func (p *packing) saw(understands bool) {
	if !understands {
		p.plainUntil.Store(time.Now().Add(plainFor).UnixNano())
		p.understood.Store(false)
		return
	}
	if !p.understood.Load() && time.Now().UnixNano() >= p.plainUntil.Load() {
		p.understood.Store(true)
	}
}

// pack joins hashes that are all of one width, and finds the count that all blocks
// share. It reports false for a chain that cannot be packed, contradictory ones among
// them: those are sent as they are, for the pod to judge.
func pack(hashes [][]byte, counts []int32) (joined []byte, width int32, fewer []int32, ok bool) {
	if len(hashes) == 0 || len(hashes) != len(counts) || len(hashes[0]) == 0 {
		return nil, 0, nil, false
	}
	size := len(hashes[0])
	joined = make([]byte, 0, size*len(hashes))
	for _, h := range hashes {
		if len(h) != size {
			return nil, 0, nil, false
		}
		joined = append(joined, h...)
	}
	return joined, int32(size), fewest(counts), true
}

// fewest is one count if all are equal to it.
func fewest(counts []int32) []int32 {
	for _, n := range counts {
		if n != counts[0] {
			return counts
		}
	}
	return counts[:1]
}

// checkPacked tells what is wrong with a packed chain.
func checkPacked(joined []byte, width int32, counts []int32) error {
	if width <= 0 || len(joined)%int(width) != 0 {
		return fmt.Errorf("%w: packed_hash_bytes of %d does not divide %d bytes of hashes", ErrRequest, width, len(joined))
	}
	if n := len(joined) / int(width); len(counts) != 1 && len(counts) != n {
		return fmt.Errorf("%w: %d block_token_counts for %d packed blocks: set as many, or one for all", ErrRequest, len(counts), n)
	}
	return nil
}

// unpack cuts a packed chain, one that checkPacked has nothing against, into its hashes.
func unpack(joined []byte, width int32, counts []int32) (hashes [][]byte, each []int32) {
	size := int(width)
	n := len(joined) / size
	hashes = make([][]byte, 0, n)
	for ; len(joined) > 0; joined = joined[size:] {
		hashes = append(hashes, joined[:size:size])
	}
	for len(counts) < n {
		counts = slices.Repeat(counts, n)
	}
	return hashes, counts
}

// packRequest is req with its chain in one piece, if it has one that fits. It tells
// whether the chain is packed now.
func packRequest(req *pb.LookupRouteRequest) (*pb.LookupRouteRequest, bool) {
	if len(req.GetPackedBlockHashes()) > 0 {
		return req, true
	}
	joined, width, counts, ok := pack(req.GetBlockHashes(), req.GetBlockTokenCounts())
	if !ok {
		return req, false
	}
	packed := shallow(req)
	packed.BlockHashes, packed.BlockTokenCounts = nil, counts
	packed.PackedBlockHashes, packed.PackedHashBytes = joined, width
	return packed, true
}

// unpackRequest is req with its chain hash by hash.
func unpackRequest(req *pb.LookupRouteRequest) *pb.LookupRouteRequest {
	if len(req.GetPackedBlockHashes()) == 0 {
		return req
	}
	plain := shallow(req)
	plain.BlockHashes, plain.BlockTokenCounts = unpack(req.GetPackedBlockHashes(), req.GetPackedHashBytes(), req.GetBlockTokenCounts())
	plain.PackedBlockHashes, plain.PackedHashBytes = nil, 0
	return plain
}

// shallow shares req's fields.
func shallow(req *pb.LookupRouteRequest) *pb.LookupRouteRequest {
	s := &pb.LookupRouteRequest{
		ModelId: req.GetModelId(), TenantId: req.GetTenantId(), HashScheme: req.GetHashScheme(), AdapterId: req.GetAdapterId(),
		PrefixHash: req.GetPrefixHash(), PrefixTokenCount: req.GetPrefixTokenCount(), Slo: req.GetSlo(),
		BlockHashes: req.GetBlockHashes(), BlockTokenCounts: req.GetBlockTokenCounts(),
		TokenIds: req.GetTokenIds(), PromptText: req.GetPromptText(),
		PackedBlockHashes: req.GetPackedBlockHashes(), PackedHashBytes: req.GetPackedHashBytes(),
	}
	s.ProtoReflect().SetUnknown(req.ProtoReflect().GetUnknown())
	return s
}
