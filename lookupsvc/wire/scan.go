package wire

import (
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Tags of LookupRouteRequest: the field's number and its wire type, bytes (2) or varint (0).
const (
	tagModel        = 1<<3 | 2
	tagTenant       = 2<<3 | 2
	tagPrefixHash   = 3<<3 | 2
	tagPrefixTokens = 4 << 3
	tagScheme       = 5<<3 | 2
	tagSLO          = 6<<3 | 2
	tagBlockHash    = 7<<3 | 2
	tagCount        = 8 << 3
	tagCounts       = 8<<3 | 2
	tagTokenID      = 9 << 3
	tagTokenIDs     = 9<<3 | 2
	tagPrompt       = 10<<3 | 2
	tagAdapter      = 11<<3 | 2
	tagPackedHashes = 1001<<3 | 2
	tagPackedWidth  = 1002 << 3
)

// scan fills m, whose fields are empty, from data. It reports false for data that
// it does not handle, well-formed or not, and then m is to be reset. Bytes fields
// of m are views of data; strings and numbers are copies.
func scan(data []byte, m *pb.LookupRouteRequest, names *names) bool {
	for i := 0; i < len(data); {
		if data[i] == tagBlockHash {
			i = scanHashes(data, i, m)
			if i < 0 {
				return false
			}
			continue
		}
		tag, n := varint(data, i)
		if n < 0 {
			return false
		}
		i = n
		if tag&7 == 0 {
			v, n := varint(data, i)
			if n < 0 || !takeNumber(tag, v, m) {
				return false
			}
			i = n
			continue
		}
		size, from := varint(data, i)
		if from < 0 || size > uint64(len(data)-from) {
			return false
		}
		i = from + int(size)
		if !takeBytes(tag, data[from:i:i], m, names) {
			return false
		}
	}
	return true
}

// scanHashes appends the block hashes that follow one another from i on, and
// returns where they end, or -1. They are what requests consist of, and mostly
// short and of one length.
func scanHashes(data []byte, i int, m *pb.LookupRouteRequest) int {
	hashes := m.BlockHashes
	for i < len(data) && data[i] == tagBlockHash {
		size, from := varint(data, i+1)
		if from < 0 || size > uint64(len(data)-from) {
			return -1
		}
		if len(hashes) == 0 {
			// Room for as many as follow, if all are as long as the first.
			hashes = slices.Grow(hashes, min((len(data)-i)/(from-i+int(size)), maxForesight))
		}
		if from != i+2 { // the length takes more than a byte
			i = from + int(size)
			hashes = append(hashes, data[from:i:i])
			continue
		}
		head, whole := data[i+1], 2+int(size)
		for ; whole <= len(data)-i && data[i] == tagBlockHash && data[i+1] == head; i += whole {
			hashes = append(hashes, data[i+2:i+whole:i+whole])
		}
	}
	m.BlockHashes = hashes
	return i
}

// maxForesight bounds, in blocks, what is allocated for what a request only promises.
const maxForesight = 8192

func takeNumber(tag, v uint64, m *pb.LookupRouteRequest) bool {
	switch tag {
	case tagPrefixTokens:
		m.PrefixTokenCount = int32(v)
	case tagCount:
		m.BlockTokenCounts = append(m.BlockTokenCounts, int32(v))
	case tagTokenID:
		m.TokenIds = append(m.TokenIds, uint32(v))
	case tagPackedWidth:
		m.PackedHashBytes = int32(v)
	default:
		return false
	}
	return true
}

func takeBytes(tag uint64, b []byte, m *pb.LookupRouteRequest, names *names) (ok bool) {
	switch tag {
	case tagModel:
		m.ModelId, ok = names.model.take(b)
	case tagTenant:
		m.TenantId, ok = names.tenant.take(b)
	case tagScheme:
		m.HashScheme, ok = names.scheme.take(b)
	case tagAdapter:
		m.AdapterId, ok = names.adapter.take(b)
	case tagPrompt:
		m.PromptText, ok = string(b), utf8.Valid(b)
	case tagPrefixHash:
		m.PrefixHash, ok = b, true
	case tagPackedHashes:
		m.PackedBlockHashes, ok = b, true
	case tagSLO:
		if m.Slo == nil {
			m.Slo = &pb.SLO{}
		}
		ok = proto.UnmarshalOptions{Merge: true}.Unmarshal(b, m.Slo) == nil
	case tagCounts:
		m.BlockTokenCounts, ok = appendNumbers(m.BlockTokenCounts, b)
	case tagTokenIDs:
		m.TokenIds, ok = appendNumbers(m.TokenIds, b)
	}
	return ok
}

// appendNumbers reads packed varints, of which wider ones are cut to 32 bits.
func appendNumbers[N int32 | uint32](dst []N, b []byte) ([]N, bool) {
	if len(dst) == 0 && cap(dst) < len(b) {
		dst = slices.Grow(dst, countNumbers(b))
	}
	for i := 0; i < len(b); {
		if b[i] < 0x80 {
			dst = append(dst, N(b[i]))
			i++
			continue
		}
		v, n := varint(b, i)
		if n < 0 {
			return dst, false
		}
		dst = append(dst, N(v))
		i = n
	}
	return dst, true
}

func countNumbers(b []byte) int {
	n := 0
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}

// varint reads one from b[i:] and returns where it ends, or -1.
func varint(b []byte, i int) (uint64, int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	if i+1 < len(b) && b[i+1] < 0x80 {
		return uint64(b[i]&0x7f) | uint64(b[i+1])<<7, i + 2
	}
	v, n := protowire.ConsumeVarint(b[min(i, len(b)):])
	if n < 0 {
		return 0, -1
	}
	return v, i + n
}
