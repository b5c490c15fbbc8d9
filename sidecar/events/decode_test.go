package events

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

type arr = []any
type dict = map[string]any

func pack(t testing.TB, v any) []byte {
	t.Helper()
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true)
	require.NoError(t, enc.Encode(v))
	return buf.Bytes()
}

func decodeOne(t *testing.T, event any) Event {
	t.Helper()
	var d Decoder
	b, err := d.Decode(pack(t, arr{1.5, arr{event}}))
	require.NoError(t, err)
	require.Len(t, b.Events, 1)
	return b.Events[0]
}

func TestEveryReleaseOfAStoredEventDecodesToTheSameForm(t *testing.T) {
	head := arr{"BlockStored", arr{7, 8}, nil, arr{1, 2, 3, 4}, 2, nil}
	trailing := arr{"CPU", "french", arr{nil, arr{"french", arr{"img", 3}}}, 0, "full_attention", nil}
	for n := 0; n <= len(trailing); n++ {
		e := decodeOne(t, append(append(arr{}, head...), trailing[:n]...))
		require.Equal(t, Stored, e.Kind)
		require.Equal(t, []Hash{{Lo: 7}, {Lo: 8}}, e.Hashes)
		require.False(t, e.HasParent)
		require.Equal(t, []uint32{1, 2, 3, 4}, e.Tokens)
		require.Equal(t, 2, e.BlockSize)
		require.False(t, e.HasLoraID)
		require.Equal(t, n >= 1, e.Medium == "CPU")
		require.Equal(t, n >= 2, e.LoraName == "french")
		if n >= 3 {
			require.Equal(t, 2, e.ExtraBlocks)
			require.Equal(t, []ExtraKey{{1, "french"}, {1, ""}}, e.Extra)
		}
		require.Equal(t, n >= 4, e.Group == 0)
		require.Equal(t, n >= 5, e.SpecKind == "full_attention")
	}
	asMap := decodeOne(t, dict{"type": "BlockStored", "block_hashes": arr{7, 8}, "parent_block_hash": nil,
		"token_ids": arr{1, 2, 3, 4}, "block_size": 2, "lora_id": nil, "medium": "CPU", "lora_name": "french",
		"extra_keys": trailing[2], "group_idx": 0, "kv_cache_spec_kind": "full_attention"})
	require.Equal(t, decodeOne(t, append(append(arr{}, head...), trailing...)), asMap)
}

func TestRemovedAndClearedInBothForms(t *testing.T) {
	for _, v := range []any{
		arr{"BlockRemoved", arr{1}, "GPU", 2},
		dict{"type": "BlockRemoved", "block_hashes": arr{1}, "medium": "GPU", "group_idx": 2},
	} {
		require.Equal(t, Event{Kind: Removed, Hashes: []Hash{{Lo: 1}}, Medium: "GPU", Group: 2}, decodeOne(t, v))
	}
	require.Equal(t, Event{Kind: Removed, Hashes: []Hash{{Lo: 1}}, Group: NoGroup}, decodeOne(t, arr{"BlockRemoved", arr{1}}))
	for _, v := range []any{arr{"AllBlocksCleared"}, dict{"type": "AllBlocksCleared"}} {
		require.Equal(t, Event{Kind: Cleared, Group: NoGroup}, decodeOne(t, v))
	}
}

func TestAHashIsTheSameSignedAndUnsignedAndNeverEqualsBytes(t *testing.T) {
	raw := bytes.Repeat([]byte{0xab}, 32)
	e := decodeOne(t, arr{"BlockRemoved", arr{int64(-2), uint64(1<<64 - 2), raw, string(raw), raw[:31]}})
	require.Equal(t, e.Hashes[0], e.Hashes[1])
	require.Equal(t, e.Hashes[2], e.Hashes[3], "bytes and an old encoder's string")
	require.NotEqual(t, e.Hashes[2], e.Hashes[4])
	require.NotZero(t, e.Hashes[2].Hi)
}

func TestBatchForms(t *testing.T) {
	var d Decoder
	for name, tc := range map[string]struct {
		v             any
		ts            float64
		rank, unknown int
	}{
		"array without rank":      {arr{2.5, arr{}}, 2.5, NoRank, 0},
		"array with rank":         {arr{2, arr{}, 3}, 2, 3, 0},
		"array with nil rank":     {arr{2.5, arr{}, nil}, 2.5, NoRank, 0},
		"array of a later engine": {arr{2.5, arr{}, 1, "new", dict{"a": arr{1}}}, 2.5, 1, 2},
		"map":                     {dict{"ts": 2.5, "events": arr{}, "data_parallel_rank": 3}, 2.5, 3, 0},
		"map of a later engine":   {dict{"ts": 2.5, "events": arr{}, "x": true, "type": "KVEventBatch"}, 2.5, NoRank, 1},
	} {
		b, err := d.Decode(pack(t, tc.v))
		require.NoError(t, err, name)
		require.Equal(t, []any{tc.ts, tc.rank, tc.unknown}, []any{b.TS, b.Rank, b.UnknownFields}, name)
	}
}

func TestUnknownEventsAndFieldsAreSkippedAndCounted(t *testing.T) {
	var d Decoder
	b, err := d.Decode(pack(t, arr{1.0, arr{
		arr{"BlockPinned", dict{"deep": arr{arr{1}}}, nil},
		dict{"type": "BlockMoved", "to": 7.5},
		arr{"BlockRemoved", arr{1}, nil, nil, "later"},
		dict{"type": "BlockRemoved", "block_hashes": arr{2}, "later": arr{1, 2}},
	}}))
	require.NoError(t, err)
	require.Len(t, b.Events, 2)
	require.Equal(t, 2, b.UnknownEvents)
	require.Equal(t, 2, b.UnknownFields)
}

func TestMalformedPayloadsAreRefusedWholeWithTheReason(t *testing.T) {
	deep := any(1)
	for range 40 {
		deep = arr{deep}
	}
	good := arr{"BlockRemoved", arr{1}}
	for reason, v := range map[string]any{
		"an array wanted":         "text",
		"a batch of 1 fields":     arr{1.0},
		"a batch without events":  dict{"ts": 1.0},
		"an event without a tag":  arr{1.0, arr{good, arr{}}},
		"an event without a type": arr{1.0, arr{good, dict{"block_hashes": arr{1}}}},
		"BlockStored with 2":      arr{1.0, arr{good, arr{"BlockStored", arr{1}, nil}}},
		"without block_hashes":    arr{1.0, arr{dict{"type": "BlockRemoved"}}},
		"a token id out of range": arr{1.0, arr{arr{"BlockStored", arr{1}, nil, arr{-1}, 1}}},
		"an integer wanted":       arr{1.0, arr{arr{"BlockRemoved", arr{1.5}}}},
		"block_size out of range": arr{1.0, arr{arr{"BlockStored", arr{1}, nil, arr{1}, -1}}},
		"data_parallel_rank out":  arr{1.0, arr{}, 100000},
		"a hash of 0 bytes":       arr{1.0, arr{arr{"BlockRemoved", arr{""}}}},
		"values nest deeper":      arr{1.0, arr{}, nil, deep},
	} {
		var d Decoder
		_, err := d.Decode(pack(t, v))
		require.ErrorIs(t, err, ErrMalformed, reason)
		require.ErrorContains(t, err, reason)
	}
	var d Decoder
	whole := pack(t, arr{1.0, arr{good}})
	for n := range whole {
		_, err := d.Decode(whole[:n])
		require.ErrorIs(t, err, ErrMalformed, "cut at %d", n)
	}
	_, err := d.Decode(append(whole, 0))
	require.ErrorContains(t, err, "follow the batch")
	_, err = d.Decode(make([]byte, MaxPayload+1))
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestALyingLengthAllocatesNothing(t *testing.T) {
	for _, payload := range [][]byte{
		{0xdd, 0xff, 0xff, 0xff, 0xff},
		{0x92, 0x01, 0xdd, 0xff, 0xff, 0xff, 0xff},
		{0xdf, 0xff, 0xff, 0xff, 0xff},
		{0x92, 0x01, 0x91, 0x92, 0xac, 'B', 'l', 'o', 'c', 'k', 'R', 'e', 'm', 'o', 'v', 'e', 'd', 0xdd, 0xff, 0xff, 0xff, 0xff},
	} {
		var d Decoder
		_, err := d.Decode(payload)
		require.ErrorIs(t, err, ErrMalformed)
		require.Less(t, cap(d.hashes)+cap(d.tokens)+cap(d.batch.Events), 16)
	}
}

func TestADecoderReusesItsMemory(t *testing.T) {
	payload := storedPayload(t, 64, 16)
	var d Decoder
	require.LessOrEqual(t, testing.AllocsPerRun(50, func() {
		_, err := d.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
	}), 0.0)
}

func storedPayload(t testing.TB, blocks, blockSize int) []byte {
	hashes, tokens := make([]uint64, blocks), make([]uint32, blocks*blockSize)
	for i := range hashes {
		hashes[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
	}
	for i := range tokens {
		tokens[i] = uint32(i * 7 % 150000)
	}
	return pack(t, arr{1.5, arr{arr{"BlockStored", hashes, uint64(1) << 63, tokens, blockSize, nil, "GPU"}}, nil})
}

// FuzzDecode: nothing panics, memory stays in proportion, and what Decode takes a stock decoder takes too.
func FuzzDecode(f *testing.F) {
	f.Add(storedPayload(f, 2, 2))
	f.Add(pack(f, dict{"ts": 1.5, "events": arr{dict{"type": "BlockRemoved", "block_hashes": arr{1, "x"}, "new": 1}}}))
	f.Add(pack(f, arr{1, arr{arr{"BlockStored", arr{1}, nil, arr{1}, 1, "id", nil, "l", arr{arr{"l", 1}}, 0, 3, 4}, arr{"AllBlocksCleared"}}, 1, 2}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var d Decoder
		b, err := d.Decode(payload)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if len(d.hashes)+len(d.tokens)+len(d.extra)+len(b.Events) > len(payload) {
			t.Fatal("more elements than bytes")
		}
		dec := msgpack.NewDecoder(bytes.NewReader(payload))
		if err := dec.Skip(); err != nil && !bytes.ContainsAny(payload, "\xc7\xc8\xc9\xd4\xd5\xd6\xd7\xd8") {
			t.Fatalf("taken, but the stock decoder says %v", err)
		}
	})
}

func BenchmarkDecode64Blocks(b *testing.B) {
	payload := storedPayload(b, 64, 16)
	b.Run("this package", func(b *testing.B) {
		var d Decoder
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Decode(payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("msgpack v5 typed", func(b *testing.B) {
		b.ReportAllocs()
		r := bytes.NewReader(nil)
		dec := msgpack.NewDecoder(r)
		hashes, tokens := make([]uint64, 64), make([]uint32, 1024)
		for b.Loop() {
			r.Reset(payload)
			dec.Reset(r)
			if err := stockDecode(dec, hashes, tokens); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// stockDecode reads the one shape of storedPayload with the library's cursor, into memory that is reused.
func stockDecode(dec *msgpack.Decoder, hashes []uint64, tokens []uint32) error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	_, err := dec.DecodeArrayLen()
	keep(err)
	_, err = dec.DecodeFloat64()
	keep(err)
	_, err = dec.DecodeArrayLen()
	keep(err)
	_, err = dec.DecodeArrayLen()
	keep(err)
	_, err = dec.DecodeString()
	keep(err)
	n, err := dec.DecodeArrayLen()
	keep(err)
	for i := range n {
		hashes[i], err = dec.DecodeUint64()
		keep(err)
	}
	_, err = dec.DecodeUint64()
	keep(err)
	n, err = dec.DecodeArrayLen()
	keep(err)
	for i := range n {
		tokens[i], err = dec.DecodeUint32()
		keep(err)
	}
	for range 4 {
		keep(dec.Skip())
	}
	return first
}
