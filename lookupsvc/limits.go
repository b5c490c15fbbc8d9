package lookupsvc

import (
	"unicode/utf8"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Limits of what a request may carry. Ingest drops what goes beyond and accepts
// the rest; a lookup beyond them is answered NO_HINT. Both count it by reason.
const (
	// MaxNameBytes bounds tenant, model, scheme, adapter and replica id.
	MaxNameBytes = 512
	// MaxHashBytes bounds one prefix hash.
	MaxHashBytes = 128
	// MaxChainBlocks bounds one chain.
	MaxChainBlocks = 65_536
	// MaxTokenIDs bounds the token ids of one lookup.
	MaxTokenIDs = 1 << 20
	// MaxMessageBytes bounds one gRPC message; the server that carries the
	// service sets it.
	MaxMessageBytes = 16 << 20

	// ReservedTenant is set aside for probes: nothing is indexed for it and
	// nothing is known about it.
	ReservedTenant = "inferencecache.io/probe"
)

// flaw is why a request, or a part of one, was not taken; the value of a reason label.
type flaw string

const (
	flawNone             flaw = ""
	flawUnequalArrays    flaw = "unequal_arrays"
	flawBadPacking       flaw = "bad_packing"
	flawEmptyName        flaw = "empty_name"
	flawEmptyScheme      flaw = "empty_scheme"
	flawNameTooLong      flaw = "name_too_long"
	flawHashTooLong      flaw = "hash_too_long"
	flawChainTooLong     flaw = "chain_too_long"
	flawTooManyTokens    flaw = "too_many_tokens"
	flawNegativeCount    flaw = "negative_count"
	flawReservedTenant   flaw = "reserved_tenant"
	flawNoTokenizer      flaw = "no_tokenizer"
	flawNoFullBlock      flaw = "no_full_block"
	flawChainNotMatched  flaw = "chain_matching_off"
	flawUnknownEventType flaw = "unknown_event_type"
	flawUndecodable      flaw = "undecodable"
)

// lookupFlaws and ingestFlaws are the label values that exist from the start, so
// that the first occurrence already shows in a rate.
var (
	lookupFlaws = []flaw{
		flawUnequalArrays, flawBadPacking, flawNameTooLong, flawHashTooLong, flawChainTooLong, flawTooManyTokens,
		flawNegativeCount, flawReservedTenant, flawNoTokenizer, flawNoFullBlock, flawChainNotMatched,
		flawUndecodable,
	}
	ingestFlaws = []flaw{
		flawUnequalArrays, flawBadPacking, flawEmptyName, flawEmptyScheme, flawNameTooLong, flawHashTooLong,
		flawChainTooLong, flawNegativeCount, flawReservedTenant, flawUnknownEventType,
	}
)

// remedy says what the sender should do about a flaw; it ends the log line.
func (f flaw) remedy() string {
	switch f {
	case flawUnequalArrays:
		return "send as many block_token_counts as blocks, or one for all blocks of a packed chain"
	case flawBadPacking:
		return "send packed_block_hashes without block_hashes, packed_hash_bytes long each and no part of one"
	case flawEmptyName:
		return "set tenant_id, model_id and replica_id"
	case flawEmptyScheme:
		return "set hash_scheme: without it stats count and prefixes do not"
	case flawNameTooLong:
		return "keep names within 512 bytes"
	case flawHashTooLong:
		return "keep hashes within 128 bytes"
	case flawChainTooLong:
		return "keep chains within 65536 blocks"
	case flawTooManyTokens:
		return "keep token_ids within 1048576"
	case flawNegativeCount:
		return "send token counts of 0 or more"
	case flawNoTokenizer:
		return "send token_ids or block_hashes instead of prompt_text"
	case flawChainNotMatched:
		return "send prefix_hash, or let the tenant's CachePolicy match chains"
	case flawUndecodable:
		return "send a LookupRouteRequest of inferencecache.v1alpha1 in protobuf"
	case flawUnknownEventType:
		return "send an event type of this version's CacheEvent.Type"
	default:
		return ""
	}
}

// Drop is why the tier would acknowledge something and index none or only a part of it.
type Drop struct {
	// Reason is the label value that it is counted under.
	Reason string
	// Remedy says what to send instead.
	Remedy string
}

// DropsOfUpdate is what the service would drop of u, for producers that want to know
// before they send it. An update of the ReservedTenant is dropped without a Remedy.
func DropsOfUpdate(u *pb.CacheStateUpdate) (drops []Drop) {
	fl := flattener{drop: func(f flaw) { drops = append(drops, Drop{string(f), f.remedy()}) }}
	fl.flatten(u)
	return drops
}

// DropsOfEvent is DropsOfUpdate for an event.
func DropsOfEvent(e *pb.CacheEvent) []Drop {
	if _, f := eventOf(e); f != flawNone {
		return []Drop{{string(f), f.remedy()}}
	}
	return nil
}

// namesWithin tells whether no name is longer than MaxNameBytes.
func namesWithin(names ...string) bool {
	for _, n := range names {
		if len(n) > MaxNameBytes {
			return false
		}
	}
	return true
}

// hashesWithin tells whether no hash is longer than MaxHashBytes.
func hashesWithin(hashes [][]byte) bool {
	for _, h := range hashes {
		if len(h) > MaxHashBytes {
			return false
		}
	}
	return true
}

// maxShown bounds, in bytes, a name that is shown and not compared.
const maxShown = 128

// cut shortens s to maxShown without splitting a character.
func cut(s string) string {
	n := maxShown
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
