package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/cputime"
)

// BenchmarkGuard fails if the scan of a request of 256 hashes is not at least five times
// as fast as protobuf's reading, by processor time in the same run. The best of five
// rounds counts: noise only ever makes things slower.
func BenchmarkGuard(b *testing.B) {
	const floor, rounds = 5, 5
	data, err := proto.Marshal(chain(256))
	require.NoError(b, err)
	received := mem.BufferSlice{mem.SliceBuffer(data)}
	best := 0.0
	for range rounds {
		stocks := cputime.OfCall(b, 20*time.Millisecond, func() { _ = stock.Unmarshal(received, new(pb.LookupRouteRequest)) })
		scan := cputime.OfCall(b, 20*time.Millisecond, func() {
			r := TakeRequest()
			_ = Codec{}.Unmarshal(received, r)
			r.Release()
		})
		best = max(best, stocks/scan)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(best, "x-protobuf")
	if best < floor {
		b.Errorf("the scan is %.1f times as fast as protobuf: it must be %d times", best, floor)
	}
}
