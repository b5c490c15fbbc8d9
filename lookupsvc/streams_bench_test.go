package lookupsvc

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// BenchmarkEventStream is what one stream carries to a consumer that does nothing else
// than read, over a connection in memory: one operation is one event.
func BenchmarkEventStream(b *testing.B) {
	x := &endlessly{ended: make(chan error, 1)}
	c := dial(b, newRig(b, func(o *Options) { o.Changes = x }).Service)
	stream, err := c.StreamCacheEvents(b.Context(), &pb.StreamEventsRequest{})
	require.NoError(b, err)
	for b.Loop() {
		if _, err := stream.Recv(); err != nil {
			b.Fatal(err)
		}
	}
}
