package store

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"inferencecache.io/lookuptier/ranking"
)

func TestHoldRecordsSaturateAndComeBack(t *testing.T) {
	for _, c := range []struct{ in, out ranking.Hold }{
		{
			ranking.Hold{Replica: 1, SeenMS: EpochMS + 1, Tier: ranking.TierT2, Tokens: 16},
			ranking.Hold{Replica: 1, SeenMS: EpochMS + 1, Tier: ranking.TierT2, Tokens: 16},
		},
		{
			ranking.Hold{Replica: maxNumber, SeenMS: math.MaxInt64 / 2, Tier: ranking.TierUnknown, Tokens: math.MaxInt32},
			ranking.Hold{Replica: maxNumber, SeenMS: EpochMS + maxU40, Tier: ranking.TierUnknown, Tokens: maxTokens},
		},
		{
			ranking.Hold{Replica: 7, SeenMS: -5, Tier: ranking.TierNone, Tokens: -1},
			ranking.Hold{Replica: 7, SeenMS: EpochMS, Tier: ranking.TierUnknown, Tokens: 0},
		},
	} {
		got, err := DecodeHolds(nil, AppendHold(nil, c.in))
		require.NoError(t, err)
		require.Equal(t, []ranking.Hold{c.out}, got)
	}
	require.Equal(t, "\x00\x00\x01\x00\x00\x00\x01\x00\x02\x00\x00\x10",
		string(AppendHold(nil, ranking.Hold{Replica: 1, SeenMS: EpochMS + 256, Tier: ranking.TierT2, Tokens: 16})), "the layout in bytes")
}

func TestReplicaRecordsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := func(what string) int64 { return EpochMS + rapid.Int64Range(1, maxU40).Draw(t, what) }
		r := ReplicaRecord{Number: rapid.Uint32Range(1, maxNumber).Draw(t, "number"), Writes: rapid.Int64Range(0, maxU40).Draw(t, "writes"), AliveMS: ms("alive")}
		if rapid.Bool().Draw(t, "stats") {
			r.StatsMS = ms("stats")
			r.Stats = ranking.Stats{
				MemoryBytes: rapid.Int64().Draw(t, "memory"), HitRate: rapid.Float32().Draw(t, "hit rate"), Pressure: rapid.Float32().Draw(t, "pressure"),
				ClientVersion: rapid.String().Draw(t, "version"), T2HitTokens: rapid.Int64().Draw(t, "hits"), T2QueryTokens: rapid.Int64().Draw(t, "queries"),
			}
		}
		if rapid.Bool().Draw(t, "lease") {
			r.LeaseMS = ms("until")
		}
		got, err := DecodeReplica(AppendReplica(nil, &r))
		require.NoError(t, err)
		require.Equal(t, r, got)
	})
}

func TestStatsThatAreNoNumberBecomeZero(t *testing.T) {
	r := ReplicaRecord{Number: 1, StatsMS: EpochMS + 1, Stats: ranking.Stats{HitRate: float32(math.NaN()), Pressure: float32(math.Inf(1))}}
	got, err := DecodeReplica(AppendReplica(nil, &r))
	require.NoError(t, err)
	require.Zero(t, got.Stats)
}

func TestNamesOfKeysAreTheLayout(t *testing.T) {
	k := KeysOf(ranking.Scope{Tenant: "acme", Model: "llama"}, 3)
	const base = "ic1:{0Yb4vl-VERm_ZMIL.3}:"
	for want, got := range map[string]string{
		base + "h": k.Head(), base + "r": k.Replicas(), base + "c": k.Serving(), base + "s": k.Spaces(), base + "log": k.Log(), base + "lock": k.Lock(),
		base + "b:" + SpaceSuffix(ranking.Space{Scheme: "vllm"}): k.Blocks(SpaceSuffix(ranking.Space{Scheme: "vllm"})),
	} {
		require.Equal(t, want, got)
	}
	require.Equal(t, strings.Trim(base, "ic1:{}"), k.Tag())
	require.Equal(t, "\x00\x00\x00\x04vllmlora", SpaceField(ranking.Space{Scheme: "vllm", Adapter: "lora"}))
	require.Equal(t, "\x00\x02\x00\x01\x00", CountField(2, 256))
	require.Len(t, SpaceSuffix(ranking.Space{}), spaceSuffixLen)
}

func TestNamesComeBackFromTheirFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sp := ranking.Space{Scheme: rapid.String().Draw(t, "scheme"), Adapter: rapid.String().Draw(t, "adapter")}
		got, err := ParseSpaceField(SpaceField(sp))
		require.NoError(t, err)
		require.Equal(t, sp, got)
		other := ranking.Space{Scheme: rapid.String().Draw(t, "other scheme"), Adapter: rapid.String().Draw(t, "other adapter")}
		require.Equal(t, sp == other, SpaceSuffix(sp) == SpaceSuffix(other))
		model, shard := rapid.String().Draw(t, "model"), rapid.IntRange(0, 1023).Draw(t, "shard")
		m, n, err := ParseCatalogMember(CatalogMember(model, shard))
		require.NoError(t, err)
		require.Equal(t, model, m)
		require.Equal(t, shard, n)
		scheme, number := rapid.Uint16().Draw(t, "index"), rapid.Uint32Range(0, maxNumber).Draw(t, "number")
		s, u, err := ParseCountField(CountField(scheme, number))
		require.NoError(t, err)
		require.Equal(t, scheme, s)
		require.Equal(t, number, u)
	})
}

func TestShardsAreEvenAndStable(t *testing.T) {
	require.Equal(t, 0, ShardOf("any", 1))
	require.Equal(t, 0, ShardOf("any", 0))
	require.Equal(t, 3, ShardOf("replica-1", 4), "as all components must have it, for ever")
	count := make([]int, 4)
	for i := range 4000 {
		count[ShardOf(strings.Repeat("r", i%7)+string(rune('a'+i%26))+strings.Repeat("x", i/26), 4)]++
	}
	for _, n := range count {
		require.InDelta(t, 1000, n, 250)
	}
}

func FuzzDecodeHolds(f *testing.F) {
	f.Add(AppendHold(nil, ranking.Hold{Replica: 1, SeenMS: EpochMS, Tier: ranking.TierT1, Tokens: 16}))
	f.Add([]byte("truncated"))
	f.Fuzz(func(t *testing.T, v []byte) {
		holds, err := DecodeHolds(nil, v)
		if err != nil {
			require.ErrorIs(t, err, ErrGarbage)
			require.Empty(t, holds)
			return
		}
		require.Len(t, holds, len(v)/HoldBytes)
		var again []byte
		for _, h := range holds {
			again = AppendHold(again, h)
		}
		same, err := DecodeHolds(nil, again)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(holds, same))
	})
}

func FuzzDecodeReplica(f *testing.F) {
	f.Add(AppendReplica(nil, &ReplicaRecord{Number: 1, StatsMS: EpochMS + 5, Stats: ranking.Stats{ClientVersion: "v"}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, v []byte) {
		r, err := DecodeReplica(string(v))
		if err != nil {
			require.ErrorIs(t, err, ErrGarbage)
			return
		}
		same, err := DecodeReplica(AppendReplica(nil, &r))
		require.NoError(t, err)
		require.Equal(t, r, same)
	})
}

func FuzzDecodeLog(f *testing.F) {
	f.Add([]byte("R\x01\x031-1abcdefghijklmnop\x00\x00\x01\x00\x00\x00\x00\x01\x02hh\x01\x00\x00\x10"))
	f.Add([]byte("E\x00\x00\x00\x00\x01\x00\x01abcdefghijklmnop\x02hh"))
	f.Add([]byte("C\x03\x00\x00\x00\x01name"))
	f.Add([]byte("S\x03\x00\x00\x01a" + string(AppendReplica(nil, &ReplicaRecord{Number: 1}))))
	f.Add([]byte("W\x01\x00"))
	f.Fuzz(func(t *testing.T, blob []byte) {
		e, err := DecodeLog(blob)
		if err != nil {
			require.ErrorIs(t, err, ErrGarbage)
			return
		}
		require.LessOrEqual(t, len(e.Holds)*5+len(e.Hashes), len(blob))
	})
}
