package wire

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// BenchmarkRead is what a server pays to turn a received message into a request:
// protobuf's way, which every gRPC server has, and the codec's.
func BenchmarkRead(b *testing.B) {
	for _, blocks := range []int{256, 2000} {
		for form, m := range map[string]*pb.LookupRouteRequest{"chain": chain(blocks), "packed": packed(blocks)} {
			data, err := proto.Marshal(m)
			require.NoError(b, err)
			received := mem.BufferSlice{mem.SliceBuffer(data)}
			b.Run(fmt.Sprintf("%s of %d/protobuf", form, blocks), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if stock.Unmarshal(received, new(pb.LookupRouteRequest)) != nil {
						b.Fatal("not read")
					}
				}
			})
			b.Run(fmt.Sprintf("%s of %d/codec", form, blocks), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r := TakeRequest()
					if (Codec{}).Unmarshal(received, r) != nil {
						b.Fatal("not read")
					}
					r.Release()
				}
			})
		}
	}
}

// BenchmarkReply is what a server pays to write an answer.
func BenchmarkReply(b *testing.B) {
	for _, replicas := range []int{1, 8, 64} {
		m := answer(replicas)
		for name, marshal := range map[string]func(any) (mem.BufferSlice, error){"protobuf": stock.Marshal, "codec": Codec{}.Marshal} {
			b.Run(fmt.Sprintf("%d replicas/%s", replicas, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					data, err := marshal(m)
					if err != nil {
						b.Fatal(err)
					}
					data.Free()
				}
			})
		}
	}
}
