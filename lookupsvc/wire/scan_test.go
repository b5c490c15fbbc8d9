package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// chain is a request of n blocks with hashes of 8 bytes.
func chain(n int) *pb.LookupRouteRequest {
	req := &pb.LookupRouteRequest{TenantId: "tenant-a", ModelId: "llama-3-70b", HashScheme: "vllm"}
	for i := range n {
		req.BlockHashes = append(req.BlockHashes, fmt.Appendf(nil, "%08d", i))
		req.BlockTokenCounts = append(req.BlockTokenCounts, 16)
	}
	return req
}

// packed is the same in one piece.
func packed(n int) *pb.LookupRouteRequest {
	req := chain(n)
	req.PackedBlockHashes, req.PackedHashBytes = bytes.Join(req.BlockHashes, nil), 8
	req.BlockHashes, req.BlockTokenCounts = nil, []int32{16}
	return req
}

// raw is a message made of its parts, for what no marshaller would write.
type raw []byte

func (r raw) bytes(field protowire.Number, b string) raw {
	return protowire.AppendString(protowire.AppendTag(r, field, protowire.BytesType), b)
}

func (r raw) number(field protowire.Number, v uint64) raw {
	return protowire.AppendVarint(protowire.AppendTag(r, field, protowire.VarintType), v)
}

// requestSeeds are what a scan can trip over.
func requestSeeds(t testing.TB) map[string][]byte {
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		require.NoError(t, err)
		return b
	}
	long := strings.Repeat("x", 300)
	return map[string][]byte{
		"empty":                  {},
		"chain":                  marshal(chain(3)),
		"packed chain":           marshal(packed(3)),
		"all fields":             marshal(&pb.LookupRouteRequest{ModelId: "m", TenantId: "t", PrefixHash: []byte("h"), PrefixTokenCount: -1, HashScheme: "s", Slo: &pb.SLO{TtftMs: 5, TbtMs: -2}, BlockHashes: [][]byte{{1}, {}, []byte(long)}, BlockTokenCounts: []int32{1, -1, 1 << 30}, TokenIds: []uint32{0, 1, 1 << 31}, PromptText: "päö", AdapterId: "a"}),
		"hash of 300 bytes":      raw{}.bytes(7, long).bytes(7, long),
		"hashes among others":    raw{}.bytes(7, "a").bytes(1, "m").bytes(7, "b"),
		"last name wins":         raw{}.bytes(1, "first").bytes(1, "second"),
		"last hash wins":         raw{}.bytes(3, "first").bytes(3, ""),
		"slo merges":             raw{}.bytes(6, "\x08\x05").bytes(6, "\x10\x07"),
		"slo with unknown field": raw{}.bytes(6, "\x50\x07"),
		"slo cut off":            raw{}.bytes(6, "\x08"),
		"counts both ways":       raw{}.number(8, 3).bytes(8, "\x10\x80\x01").number(8, 5),
		"ids both ways":          raw{}.bytes(9, "\x01").number(9, 1<<40|7).bytes(9, ""),
		"ten byte varint":        raw{}.bytes(8, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"eleven byte varint":     raw{}.bytes(8, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"too large a varint":     raw{}.bytes(8, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
		"count cut off":          raw{}.bytes(8, "\x80"),
		"number of 64 bits":      raw{}.number(4, 1<<40|9),
		"long form of a tag":     raw("\xba\x00\x01a"),
		"long form of a length":  raw("\x3a\x81\x00a"),
		"long form of a number":  raw("\x20\x85\x00"),
		"unknown field":          raw{}.number(99, 1).bytes(7, "a").bytes(100, "z"),
		"hash as a number":       raw{}.number(7, 1),
		"name as a number":       raw{}.number(1, 1),
		"number as bytes":        raw{}.bytes(4, "\x05"),
		"fixed width":            raw("\x25\x01\x02\x03\x04"),
		"group":                  raw("\x0b\x0c"),
		"end of no group":        raw("\x0c"),
		"field zero":             raw("\x00\x01"),
		"tag alone":              raw("\x3a"),
		"tag of a second alone":  raw("\x3a\x01a\x3a"),
		"length beyond the end":  raw("\x3a\x05a"),
		"length of a second":     raw("\x3a\x01a\x3a\x80"),
		"length of 2^63":         raw("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
		"hash length of 2^63":    raw("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
		"hash length of 2^64-1":  raw("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"model not UTF-8":        raw{}.bytes(1, "\xff"),
		"first model not UTF-8":  raw{}.bytes(1, "\xff").bytes(1, "m"),
		"adapter not UTF-8":      raw{}.bytes(11, "\xc3"),
		"prompt not UTF-8":       raw{}.bytes(10, "a\xff"),
		"hash not UTF-8":         raw{}.bytes(7, "\xff").bytes(3, "\xff"),
		"width negative":         raw{}.bytes(1001, "abcd").number(1002, 1<<64-2),
	}
}

// read decodes the way the codec does: the message may come in pieces.
func read(r *Request, data []byte, pieces int) error {
	var received mem.BufferSlice
	for pieces > 1 && len(data) > 0 {
		n := len(data) / pieces
		received, data, pieces = append(received, mem.SliceBuffer(data[:n])), data[n:], pieces-1
	}
	received = append(received, mem.SliceBuffer(data))
	return Codec{}.Unmarshal(received, r)
}

// same checks one message against protobuf, in memory that was used before.
func same(t *testing.T, data []byte) {
	t.Helper()
	var want pb.LookupRouteRequest
	wantErr := proto.Unmarshal(data, &want)
	for pieces := 1; pieces <= 3; pieces++ {
		r := TakeRequest()
		err := read(r, bytes.Clone(data), pieces)
		if wantErr != nil {
			require.EqualError(t, err, wantErr.Error())
		} else {
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(&want, &r.LookupRouteRequest, protocmp.Transform()))
			require.Equal(t, want.Slo == nil, r.Slo == nil)
		}
		r.Release()
	}
}

func TestReadsWhatProtobufReads(t *testing.T) {
	for name, data := range requestSeeds(t) {
		t.Run(name, func(t *testing.T) { same(t, data) })
	}
}

func TestReadsEveryCutOfAMessageAsProtobufDoes(t *testing.T) {
	data, err := proto.Marshal(&pb.LookupRouteRequest{ModelId: "m", TenantId: "t", Slo: &pb.SLO{TtftMs: 500}, PrefixTokenCount: 300,
		BlockHashes: [][]byte{[]byte("one"), bytes.Repeat([]byte{1}, 200)}, BlockTokenCounts: []int32{16, 1000},
		PackedBlockHashes: []byte("abcd"), PackedHashBytes: 2})
	require.NoError(t, err)
	for n := range data {
		same(t, data[:n])
	}
}

func FuzzReadsWhatProtobufReads(f *testing.F) {
	for _, data := range requestSeeds(f) {
		f.Add(data)
	}
	f.Fuzz(same)
}

func TestScanHandlesWhatClientsSend(t *testing.T) {
	for name, m := range map[string]*pb.LookupRouteRequest{
		"chain": chain(256), "packed": packed(256),
		"tokens": {ModelId: "m", TokenIds: []uint32{1, 70_000}, Slo: &pb.SLO{TtftMs: 100}},
		"text":   {PromptText: "päö", AdapterId: "lora"},
		"hash":   {PrefixHash: []byte("h"), PrefixTokenCount: 64},
	} {
		data, err := proto.Marshal(m)
		require.NoError(t, err)
		var got pb.LookupRouteRequest
		require.True(t, scan(data, &got, new(names)), name)
		require.Empty(t, cmp.Diff(m, &got, protocmp.Transform()))
	}
}

func TestAWarmRequestIsReadWithoutAllocations(t *testing.T) {
	for _, m := range []*pb.LookupRouteRequest{chain(256), packed(256)} {
		data, err := proto.Marshal(m)
		require.NoError(t, err)
		r, received := new(Request), mem.BufferSlice{mem.SliceBuffer(data)}
		cycle := func() {
			require.NoError(t, r.read(received))
			r.reset()
		}
		cycle()
		require.Zero(t, testing.AllocsPerRun(20, cycle))
	}
}

func TestNothingOfARequestIsInTheNext(t *testing.T) {
	data := requestSeeds(t)
	r := new(Request)
	for _, first := range data {
		for _, second := range data {
			_ = read(r, first, 1)
			r.reset()
			var want pb.LookupRouteRequest
			if err := proto.Unmarshal(second, &want); err != nil {
				require.EqualError(t, read(r, second, 1), err.Error())
			} else {
				require.NoError(t, read(r, second, 1))
				require.True(t, proto.Equal(&want, &r.LookupRouteRequest))
			}
			r.reset()
		}
	}
}
