package wire

import (
	"math"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// marshalReply writes a LookupRouteResponse, fields in the order of their numbers.
// It reports false for what handlers of this project do not answer; protobuf knows
// what to make of it.
func marshalReply(m *pb.LookupRouteResponse) (mem.BufferSlice, bool) {
	if m == nil || len(m.GetTokenIds()) > 0 || len(m.ProtoReflect().GetUnknown()) > 0 ||
		!utf8.ValidString(m.GetReasonCode()) || !utf8.ValidString(m.GetAdapterId()) {
		return nil, false
	}
	size := mostOfReply + len(m.GetReasonCode()) + len(m.GetAdapterId())
	for _, s := range m.GetReplicaScores() {
		if s == nil || len(s.ProtoReflect().GetUnknown()) > 0 || !utf8.ValidString(s.GetReplicaId()) {
			return nil, false
		}
		size += 1 + protowire.SizeBytes(sizeOfScore(s))
	}
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(appendReply(make([]byte, 0, size), m))}, true
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(size)
	*buf = appendReply((*buf)[:0], m)
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, true
}

// mostOfReply is what a reply takes at most besides its replicas and the bytes of its
// strings: a tag is 1 byte (2 for field 1001), a length at most 5, a varint at most 10.
const mostOfReply = (1 + 5) + (1 + 10) + (1 + 5) + (2 + 1)

func appendReply(b []byte, m *pb.LookupRouteResponse) []byte {
	for _, s := range m.GetReplicaScores() {
		b = append(b, 1<<3|2)
		b = protowire.AppendVarint(b, uint64(sizeOfScore(s)))
		b = appendScore(b, s)
	}
	b = appendString(b, 2, m.GetReasonCode())
	b = appendNumber(b, 3, m.GetLookupLatencyUs())
	b = appendString(b, 5, m.GetAdapterId())
	if m.GetPackedChains() {
		b = protowire.AppendTag(b, 1001, protowire.VarintType)
		b = append(b, 1)
	}
	return b
}

func appendScore(b []byte, s *pb.ReplicaScore) []byte {
	b = appendString(b, 1, s.GetReplicaId())
	b = appendFloat(b, 2, s.GetScore())
	b = appendNumber(b, 3, int64(s.GetMatchedTokens()))
	b = appendFloat(b, 4, s.GetEstimatedCacheHitProb())
	return appendNumber(b, 5, int64(s.GetTier()))
}

// sizeOfScore is what appendScore appends.
func sizeOfScore(s *pb.ReplicaScore) int {
	n := 0
	if id := s.GetReplicaId(); id != "" {
		n += 1 + protowire.SizeBytes(len(id))
	}
	for _, f := range [2]float32{s.GetScore(), s.GetEstimatedCacheHitProb()} {
		if math.Float32bits(f) != 0 {
			n += 1 + 4
		}
	}
	for _, v := range [2]int32{s.GetMatchedTokens(), int32(s.GetTier())} {
		if v != 0 {
			n += 1 + protowire.SizeVarint(uint64(int64(v)))
		}
	}
	return n
}

// The append functions leave a zero out, as proto3 does. Their fields' numbers are
// below 16: a tag is one byte.

func appendString(b []byte, field byte, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(append(b, field<<3|2), s)
}

func appendNumber(b []byte, field byte, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, field<<3), uint64(v))
}

func appendFloat(b []byte, field byte, f float32) []byte {
	bits := math.Float32bits(f) // −0 is not zero here
	if bits == 0 {
		return b
	}
	return protowire.AppendFixed32(append(b, field<<3|5), bits)
}
