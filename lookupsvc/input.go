package lookupsvc

import (
	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// source is which of the ways to name a prompt a request used.
type source uint8

const (
	sourceNothing source = iota // no hash, no tokens, no text: the empty hash
	sourceChain
	sourceHash
	sourceTokens
	sourceText
	sources // how many there are
)

var sourceNames = [sources]string{"nothing", "chain", "prefix_hash", "token_ids", "prompt_text"}

// resolve fills the lookup's input from the request: the first of an explicit
// chain or hash, token ids, and text that is present (step 4 of LookupRoute). A
// flaw means NO_HINT. The input borrows the request's slices.
func (l *lookup) resolve(req *pb.LookupRouteRequest, p *ranking.Policy, blockSize int) (source, flaw) {
	if !namesWithin(req.GetTenantId(), req.GetModelId(), req.GetHashScheme(), req.GetAdapterId()) {
		return sourceNothing, flawNameTooLong
	}
	l.in = ranking.Input{
		Query: ranking.Query{
			Scope: ranking.Scope{Tenant: req.GetTenantId(), Model: req.GetModelId()},
			Space: ranking.Space{Scheme: req.GetHashScheme(), Adapter: req.GetAdapterId()},
			TTLMS: max(1, p.EvictionTTL.Milliseconds()),
		},
		TTFTMS: req.GetSlo().GetTtftMs(),
	}
	chainFields := len(req.GetBlockHashes())+len(req.GetBlockTokenCounts())+len(req.GetPackedBlockHashes()) > 0
	switch {
	case chainFields && p.ChainMatching:
		return sourceChain, l.takeChain(req)
	case len(req.GetPrefixHash()) > 0:
		return sourceHash, l.takeHash(req)
	case chainFields:
		// Present, so nothing further down counts, and yet not to be matched.
		return sourceChain, flawChainNotMatched
	case len(req.GetTokenIds()) > 0:
		return sourceTokens, l.takeTokens(req.GetTokenIds(), p.ChainMatching, blockSize)
	case req.GetPromptText() != "":
		return sourceText, flawNoTokenizer
	default:
		// A hash may be of any length, and so of none.
		return sourceNothing, l.takeHash(req)
	}
}

func (l *lookup) takeChain(req *pb.LookupRouteRequest) flaw {
	hashes, counts := req.GetBlockHashes(), req.GetBlockTokenCounts()
	packed := len(req.GetPackedBlockHashes()) > 0
	if f := chainFlaw(req); f != flawNone {
		return f
	}
	if packed {
		l.hashes = appendBlocks(l.hashes[:0], req)
		hashes = l.hashes
	}
	sum, ok := total(counts)
	if !ok {
		return flawNegativeCount
	}
	if packed && len(counts) < len(hashes) {
		sum *= int64(len(hashes))
		l.tokens = appendEach(l.tokens[:0], counts[0], len(hashes))
		counts = l.tokens
	}
	l.in.Hashes, l.in.Tokens, l.in.PrefixTokens = hashes, counts, sum
	return flawNone
}

func (l *lookup) takeHash(req *pb.LookupRouteRequest) flaw {
	if len(req.GetPrefixHash()) > MaxHashBytes {
		return flawHashTooLong
	}
	l.hashes = append(l.hashes[:0], req.GetPrefixHash())
	// A count below zero states nothing, like zero.
	l.in.Hashes, l.in.Exact, l.in.PrefixTokens = l.hashes, true, int64(max(0, req.GetPrefixTokenCount()))
	return flawNone
}

// takeTokens cuts token ids into full blocks and fingerprints them. Where chains
// are not matched the last block stands for the whole: its hash covers all before it.
func (l *lookup) takeTokens(ids []uint32, chain bool, blockSize int) flaw {
	if len(ids) > MaxTokenIDs {
		return flawTooManyTokens
	}
	blocks := len(ids) / blockSize
	if blocks == 0 {
		return flawNoFullBlock
	}
	if blocks > MaxChainBlocks {
		return flawChainTooLong
	}
	l.fingerprints = ranking.AppendFingerprints(l.fingerprints[:0], nil, ids, blockSize)
	l.in.PrefixTokens = int64(blocks) * int64(blockSize)
	l.hashes, l.tokens = l.hashes[:0], l.tokens[:0]
	first := 0
	if !chain {
		first = blocks - 1
	}
	for i := first; i < blocks; i++ {
		from := i * ranking.FingerprintBytes
		l.hashes = append(l.hashes, l.fingerprints[from:from+ranking.FingerprintBytes])
		l.tokens = append(l.tokens, int32(blockSize))
	}
	l.in.Hashes = l.hashes
	if chain {
		l.in.Tokens = l.tokens
	} else {
		l.in.Exact = true
	}
	return flawNone
}

// total sums counts; false if one is negative.
func total(counts []int32) (int64, bool) {
	var sum int64
	for _, c := range counts {
		if c < 0 {
			return 0, false
		}
		sum += int64(c)
	}
	return sum, true
}
