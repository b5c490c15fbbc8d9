package lookupsvc

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// resolved is what a request comes to.
func resolved(t *testing.T, req *pb.LookupRouteRequest, chainMatching bool, blockSize int) (ranking.Input, source, flaw) {
	t.Helper()
	p := ranking.DefaultPolicy()
	p.ChainMatching = chainMatching
	l := &lookup{}
	from, f := l.resolve(req, &p, blockSize)
	return l.in, from, f
}

func TestTheFirstInputThatIsPresentCounts(t *testing.T) {
	ids := randomIDs(32)
	for name, c := range map[string]struct {
		req   *pb.LookupRouteRequest
		chain bool
		from  source
		flaw  flaw
		exact bool
	}{
		"chain before hash":           {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}, BlockTokenCounts: []int32{1}, PrefixHash: []byte{2}}, true, sourceChain, flawNone, false},
		"hash before tokens":          {&pb.LookupRouteRequest{PrefixHash: []byte{2}, TokenIds: ids}, true, sourceHash, flawNone, true},
		"tokens before text":          {&pb.LookupRouteRequest{TokenIds: ids, PromptText: "x"}, true, sourceTokens, flawNone, false},
		"text":                        {&pb.LookupRouteRequest{PromptText: "x"}, true, sourceText, flawNoTokenizer, false},
		"nothing is the empty hash":   {&pb.LookupRouteRequest{}, true, sourceNothing, flawNone, true},
		"unequal does not fall back":  {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}, PrefixHash: []byte{2}, TokenIds: ids}, true, sourceChain, flawUnequalArrays, false},
		"counts alone are a chain":    {&pb.LookupRouteRequest{BlockTokenCounts: []int32{1}, TokenIds: ids}, true, sourceChain, flawUnequalArrays, false},
		"off: hash beside a chain":    {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}, BlockTokenCounts: []int32{1}, PrefixHash: []byte{2}}, false, sourceHash, flawNone, true},
		"off: hash beside unequal":    {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}, PrefixHash: []byte{2}}, false, sourceHash, flawNone, true},
		"off: only a chain":           {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}, BlockTokenCounts: []int32{1}}, false, sourceChain, flawChainNotMatched, false},
		"off: chain hides the tokens": {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}, BlockTokenCounts: []int32{1}, TokenIds: ids}, false, sourceChain, flawChainNotMatched, false},
		"off: tokens":                 {&pb.LookupRouteRequest{TokenIds: ids}, false, sourceTokens, flawNone, true},
	} {
		in, from, f := resolved(t, c.req, c.chain, 16)
		require.Equal(t, c.from, from, name)
		require.Equal(t, c.flaw, f, name)
		if f == flawNone {
			require.Equal(t, c.exact, in.Exact, name)
			require.Equal(t, !c.exact, in.Tokens != nil, name)
		}
	}
}

func TestTokenIDsBecomeAChain(t *testing.T) {
	ids := make([]uint32, 40)
	for i := range ids {
		ids[i] = uint32(i + 1)
	}
	in, _, f := resolved(t, &pb.LookupRouteRequest{TokenIds: ids}, true, 16)
	require.Equal(t, flawNone, f)
	require.Len(t, in.Hashes, 2, "eight tokens are short of a block")
	require.Equal(t, "ea06fc71a5ee6e88", hex.EncodeToString(in.Hashes[0]))
	require.Equal(t, []int32{16, 16}, in.Tokens)
	require.EqualValues(t, 32, in.PrefixTokens)

	off, _, f := resolved(t, &pb.LookupRouteRequest{TokenIds: ids}, false, 16)
	require.Equal(t, flawNone, f)
	require.Equal(t, in.Hashes[1:], off.Hashes, "the last block stands for all")
	require.EqualValues(t, 32, off.PrefixTokens)
	require.True(t, off.Exact)

	wide, _, f := resolved(t, &pb.LookupRouteRequest{TokenIds: ids}, true, 40)
	require.Equal(t, flawNone, f)
	require.Equal(t, []int32{40}, wide.Tokens)
}

func TestALookupBeyondALimitIsNoHintAndCounted(t *testing.T) {
	long := strings.Repeat("n", 513)
	hash := bytes.Repeat([]byte{7}, 129)
	many := &pb.LookupRouteRequest{BlockHashes: make([][]byte, 65_537), BlockTokenCounts: make([]int32, 65_537)}
	for name, c := range map[string]struct {
		req    *pb.LookupRouteRequest
		reason string
	}{
		"tenant":     {&pb.LookupRouteRequest{TenantId: long}, "name_too_long"},
		"model":      {&pb.LookupRouteRequest{ModelId: long}, "name_too_long"},
		"scheme":     {&pb.LookupRouteRequest{HashScheme: long}, "name_too_long"},
		"adapter":    {&pb.LookupRouteRequest{AdapterId: long}, "name_too_long"},
		"hash":       {&pb.LookupRouteRequest{PrefixHash: hash}, "hash_too_long"},
		"chain hash": {&pb.LookupRouteRequest{BlockHashes: [][]byte{hash}, BlockTokenCounts: []int32{1}}, "hash_too_long"},
		"chain":      {many, "chain_too_long"},
		"tokens":     {&pb.LookupRouteRequest{TokenIds: make([]uint32, 1<<20+1)}, "too_many_tokens"},
		"negative":   {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}, BlockTokenCounts: []int32{-1}}, "negative_count"},
		"unequal":    {&pb.LookupRouteRequest{BlockHashes: [][]byte{{1}}}, "unequal_arrays"},
		"text":       {&pb.LookupRouteRequest{PromptText: "x"}, "no_tokenizer"},
		"short":      {&pb.LookupRouteRequest{TokenIds: make([]uint32, 15)}, "no_full_block"},
	} {
		r := newRig(t)
		r.holds("r1", "a")
		resp := r.ask(c.req)
		require.Equal(t, "NO_HINT", resp.GetReasonCode(), name)
		require.Equal(t, 1, r.value("inferencecache_lookup_rejected_total", prometheus.Labels{"reason": c.reason}), name)
		require.NotContains(t, r.log.String(), long, "names in the log are cut")
	}
}

func TestALookupAtALimitIsAnswered(t *testing.T) {
	name := strings.Repeat("n", 512)
	req := &pb.LookupRouteRequest{AdapterId: name, PrefixHash: bytes.Repeat([]byte{7}, 128), PrefixTokenCount: 1}
	_, _, f := resolved(t, req, true, 16)
	require.Equal(t, flawNone, f)
	_, _, f = resolved(t, &pb.LookupRouteRequest{
		BlockHashes: make([][]byte, 65_536), BlockTokenCounts: make([]int32, 65_536)}, true, 16)
	require.Equal(t, flawNone, f)
	in, _, f := resolved(t, &pb.LookupRouteRequest{TokenIds: make([]uint32, 1<<20)}, true, 16)
	require.Equal(t, flawNone, f)
	require.Len(t, in.Hashes, 65_536)
	_, _, f = resolved(t, &pb.LookupRouteRequest{TokenIds: make([]uint32, 1<<20)}, true, 8)
	require.Equal(t, flawChainTooLong, f)
}

func TestACountBelowZeroStatesNothing(t *testing.T) {
	in, _, f := resolved(t, exact("a", -5), true, 16)
	require.Equal(t, flawNone, f)
	require.Zero(t, in.PrefixTokens)
}

func TestTheChainsSumDoesNotOverflow(t *testing.T) {
	counts := make([]int32, 1000)
	for i := range counts {
		counts[i] = 1<<31 - 1
	}
	in, _, f := resolved(t, &pb.LookupRouteRequest{BlockHashes: make([][]byte, 1000), BlockTokenCounts: counts}, true, 16)
	require.Equal(t, flawNone, f)
	require.EqualValues(t, 1000*(1<<31-1), in.PrefixTokens)
}
