package lookupsvc

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

func flattened(u *pb.CacheStateUpdate) (*ranking.Report, []flaw) {
	var drops []flaw
	fl := flattener{drop: func(f flaw) { drops = append(drops, f) }}
	return fl.flatten(u), drops
}

// update is a valid update without content.
func update(change func(*pb.CacheStateUpdate)) *pb.CacheStateUpdate {
	u := &pb.CacheStateUpdate{TenantId: "t", ModelId: "m", ReplicaId: "r", HashScheme: "s"}
	change(u)
	return u
}

func prefixes(entries ...*pb.PrefixEntry) *pb.CacheStateUpdate {
	return update(func(u *pb.CacheStateUpdate) { u.Prefixes = entries })
}

func TestEntriesBecomeHolds(t *testing.T) {
	a, b, p := []byte("a"), []byte("b"), []byte("p")
	for name, c := range map[string]struct {
		entry *pb.PrefixEntry
		want  []ranking.Entry
	}{
		"a hash": {&pb.PrefixEntry{PrefixHash: p, TokenCount: 100},
			[]ranking.Entry{{Hash: p, Tokens: 100, Tier: ranking.TierT1}}},
		"a chain is a running sum": {&pb.PrefixEntry{BlockHashes: [][]byte{a, b}, BlockTokenCounts: []int32{64, 32}, Tier: 2},
			[]ranking.Entry{{Hash: a, Tokens: 64, Tier: ranking.TierT2}, {Hash: b, Tokens: 96, Tier: ranking.TierT2}}},
		"a hash beside a chain": {&pb.PrefixEntry{BlockHashes: [][]byte{a}, BlockTokenCounts: []int32{64}, PrefixHash: p, TokenCount: 7},
			[]ranking.Entry{{Hash: a, Tokens: 64, Tier: ranking.TierT1}, {Hash: p, Tokens: 7, Tier: ranking.TierT1}}},
		"a count beside a chain is none of its holds": {&pb.PrefixEntry{BlockHashes: [][]byte{a}, BlockTokenCounts: []int32{64}, TokenCount: 7},
			[]ranking.Entry{{Hash: a, Tokens: 64, Tier: ranking.TierT1}}},
		"no hash at all is the empty one": {&pb.PrefixEntry{TokenCount: 9},
			[]ranking.Entry{{Tokens: 9, Tier: ranking.TierT1}}},
		"an empty hash in a chain": {&pb.PrefixEntry{BlockHashes: [][]byte{{}}, BlockTokenCounts: []int32{0}},
			[]ranking.Entry{{Hash: []byte{}, Tier: ranking.TierT1}}},
		"an unknown tier is the coldest": {&pb.PrefixEntry{PrefixHash: p, Tier: 9},
			[]ranking.Entry{{Hash: p, Tier: ranking.TierUnknown}}},
		"a negative tier too": {&pb.PrefixEntry{PrefixHash: p, Tier: -1},
			[]ranking.Entry{{Hash: p, Tier: ranking.TierUnknown}}},
		"the sum saturates": {&pb.PrefixEntry{BlockHashes: [][]byte{a, b}, BlockTokenCounts: []int32{math.MaxInt32, math.MaxInt32}},
			[]ranking.Entry{{Hash: a, Tokens: math.MaxInt32, Tier: ranking.TierT1}, {Hash: b, Tokens: math.MaxInt32, Tier: ranking.TierT1}}},
	} {
		r, drops := flattened(prefixes(c.entry))
		require.Empty(t, drops, name)
		require.Empty(t, cmp.Diff(c.want, r.Entries), name)
	}
}

func TestTheAdapterIsInherited(t *testing.T) {
	r, _ := flattened(update(func(u *pb.CacheStateUpdate) {
		u.AdapterId = "outer"
		u.Prefixes = []*pb.PrefixEntry{{PrefixHash: []byte("a")}, {PrefixHash: []byte("b"), AdapterId: "inner"}}
	}))
	require.Equal(t, "outer", r.Entries[0].Adapter)
	require.Equal(t, "inner", r.Entries[1].Adapter)
}

func TestAnEntryIsDroppedWholeForWhatIsWrongInIt(t *testing.T) {
	long := bytes.Repeat([]byte{1}, 129)
	for name, c := range map[string]struct {
		entry *pb.PrefixEntry
		want  flaw
	}{
		"unequal, with a hash":  {&pb.PrefixEntry{BlockHashes: [][]byte{{1}}, PrefixHash: []byte("p")}, flawUnequalArrays},
		"counts without hashes": {&pb.PrefixEntry{BlockTokenCounts: []int32{1}, PrefixHash: []byte("p")}, flawUnequalArrays},
		"a long hash":           {&pb.PrefixEntry{PrefixHash: long}, flawHashTooLong},
		"a long hash in it":     {&pb.PrefixEntry{BlockHashes: [][]byte{{1}, long}, BlockTokenCounts: []int32{1, 1}}, flawHashTooLong},
		"a long chain":          {&pb.PrefixEntry{BlockHashes: make([][]byte, 65_537), BlockTokenCounts: make([]int32, 65_537)}, flawChainTooLong},
		"a negative count":      {&pb.PrefixEntry{PrefixHash: []byte("p"), TokenCount: -1}, flawNegativeCount},
		"a negative block":      {&pb.PrefixEntry{BlockHashes: [][]byte{{1}, {2}}, BlockTokenCounts: []int32{5, -1}}, flawNegativeCount},
		"a long adapter":        {&pb.PrefixEntry{PrefixHash: []byte("p"), AdapterId: strings.Repeat("a", 513)}, flawNameTooLong},
	} {
		r, drops := flattened(prefixes(c.entry, &pb.PrefixEntry{PrefixHash: []byte("good")}))
		require.Equal(t, []flaw{c.want}, drops, name)
		require.Len(t, r.Entries, 1, name)
		require.Equal(t, "good", string(r.Entries[0].Hash), name)
	}
}

func TestAnUpdateIsDroppedWholeForItsNames(t *testing.T) {
	long := strings.Repeat("n", 513)
	for name, c := range map[string]struct {
		change func(*pb.CacheStateUpdate)
		want   flaw
	}{
		"no tenant":    {func(u *pb.CacheStateUpdate) { u.TenantId = "" }, flawEmptyName},
		"no model":     {func(u *pb.CacheStateUpdate) { u.ModelId = "" }, flawEmptyName},
		"no replica":   {func(u *pb.CacheStateUpdate) { u.ReplicaId = "" }, flawEmptyName},
		"long tenant":  {func(u *pb.CacheStateUpdate) { u.TenantId = long }, flawNameTooLong},
		"long model":   {func(u *pb.CacheStateUpdate) { u.ModelId = long }, flawNameTooLong},
		"long replica": {func(u *pb.CacheStateUpdate) { u.ReplicaId = long }, flawNameTooLong},
		"long scheme":  {func(u *pb.CacheStateUpdate) { u.HashScheme = long }, flawNameTooLong},
		"reserved":     {func(u *pb.CacheStateUpdate) { u.TenantId = ReservedTenant }, flawReservedTenant},
	} {
		r, drops := flattened(update(func(u *pb.CacheStateUpdate) {
			u.Prefixes = []*pb.PrefixEntry{{PrefixHash: []byte("p")}, {PrefixHash: []byte("q")}}
			u.Stats = &pb.ReplicaStats{HitRate: 1}
			c.change(u)
		}))
		require.Nil(t, r, name)
		require.Equal(t, []flaw{c.want}, drops, name)
	}
}

func TestWithoutASchemeOnlyStatsCount(t *testing.T) {
	r, drops := flattened(update(func(u *pb.CacheStateUpdate) {
		u.HashScheme = ""
		u.Prefixes = []*pb.PrefixEntry{{PrefixHash: []byte("p")}}
		u.Stats = &pb.ReplicaStats{HitRate: 0.5}
	}))
	require.Empty(t, r.Entries)
	require.InDelta(t, 0.5, r.Stats.HitRate, 1e-9)
	require.Equal(t, []flaw{flawEmptyScheme}, drops)
}

func TestAnUpdateWithNothingInItAsksNothingOfTheIndex(t *testing.T) {
	r, drops := flattened(update(func(*pb.CacheStateUpdate) {}))
	require.Nil(t, r)
	require.Empty(t, drops)
}

func TestStatsAreFiniteAndTheUpdatesOwn(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	r, _ := flattened(update(func(u *pb.CacheStateUpdate) {
		u.Stats = &pb.ReplicaStats{ReplicaId: "another", CacheMemoryBytes: 5, HitRate: nan, Pressure: inf,
			ClientVersion: strings.Repeat("é", 200), T2HitTokens: 6, T2QueryTokens: 7}
	}))
	require.Equal(t, "r", r.Replica)
	require.Equal(t, ranking.Stats{MemoryBytes: 5, ClientVersion: strings.Repeat("é", 64), T2HitTokens: 6, T2QueryTokens: 7}, *r.Stats)
	r, _ = flattened(update(func(u *pb.CacheStateUpdate) {
		u.Stats = &pb.ReplicaStats{HitRate: -inf, Pressure: -2}
	}))
	require.Equal(t, ranking.Stats{Pressure: -2}, *r.Stats)
}

func TestTimesKeepTheirMeaning(t *testing.T) {
	for us, ms := range map[int64]int64{
		0:                      0, // now
		1_700_000_000_123_456:  1_700_000_000_123,
		999:                    1, // 1970, not now
		-5_000_000:             1,
		math.MinInt64:          1,
		math.MaxInt64:          math.MaxInt64 / 1000,
		1_000:                  1,
		-1_700_000_000_123_456: 1,
	} {
		require.Equal(t, ms, unixMS(us), us)
	}
}

func TestAFlattenerKeepsNothingOfTheUpdateBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		updates := rapid.SliceOfN(rapid.Custom(anyUpdate), 1, 4).Draw(t, "updates")
		reused := flattener{drop: func(flaw) {}}
		for _, u := range updates {
			fresh := flattener{drop: func(flaw) {}}
			require.Empty(t, cmp.Diff(fresh.flatten(u), reused.flatten(u), cmpopts.EquateEmpty()))
		}
	})
}

func anyUpdate(t *rapid.T) *pb.CacheStateUpdate {
	u := &pb.CacheStateUpdate{
		TenantId:   rapid.SampledFrom([]string{"t", "u", "", ReservedTenant}).Draw(t, "tenant"),
		ModelId:    rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model"),
		ReplicaId:  rapid.SampledFrom([]string{"r", "q"}).Draw(t, "replica"),
		HashScheme: rapid.SampledFrom([]string{"s", ""}).Draw(t, "scheme"),
		AdapterId:  rapid.SampledFrom([]string{"", "lora"}).Draw(t, "adapter"),
	}
	if rapid.Bool().Draw(t, "stats") {
		u.Stats = &pb.ReplicaStats{HitRate: rapid.Float32().Draw(t, "hit rate")}
	}
	for range rapid.IntRange(0, 3).Draw(t, "entries") {
		u.Prefixes = append(u.Prefixes, &pb.PrefixEntry{
			PrefixHash:       rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "hash"),
			TokenCount:       rapid.Int32Range(-1, 5).Draw(t, "tokens"),
			BlockHashes:      rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 4), 0, 2).Draw(t, "chain"),
			BlockTokenCounts: rapid.SliceOfN(rapid.Int32Range(-1, 64), 0, 2).Draw(t, "counts"),
		})
	}
	return u
}
