package wire

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Request is a LookupRouteRequest in memory that is used again, with the bytes
// that it was read from. Codec fills it; a server without Codec fills it through
// protobuf as it does every message. Until Release its fields are an ordinary
// message's; after it they belong to another request.
type Request struct {
	pb.LookupRouteRequest

	received mem.Buffer // what the bytes fields are views of; nil = protobuf filled r
	names    names
}

// largestKept bounds, in elements, the slices that stay with a Request in the pool.
const largestKept = 8192

var requests = sync.Pool{New: func() any { return new(Request) }}

// TakeRequest returns an empty Request.
func TakeRequest() *Request { return requests.Get().(*Request) }

// read fills r, which is empty, from a message.
func (r *Request) read(data mem.BufferSlice) error {
	received := data.MaterializeToBuffer(mem.DefaultBufferPool())
	if scan(received.ReadOnlyData(), &r.LookupRouteRequest, &r.names) {
		r.received = received
		return nil
	}
	defer received.Free()
	return proto.Unmarshal(received.ReadOnlyData(), &r.LookupRouteRequest)
}

// Release gives r and the received bytes back. A Request that something may still
// read is left to the garbage collector instead.
func (r *Request) Release() {
	r.reset()
	requests.Put(r)
}

// reset empties r and keeps the room in its slices, if they are scan's.
func (r *Request) reset() {
	m := &r.LookupRouteRequest
	hashes, counts, ids := m.BlockHashes, m.BlockTokenCounts, m.TokenIds
	m.Reset()
	if r.received == nil {
		return
	}
	r.received.Free()
	r.received = nil
	if cap(hashes) <= largestKept && cap(counts) <= largestKept && cap(ids) <= largestKept {
		clear(hashes) // a view would keep all of its buffer
		m.BlockHashes, m.BlockTokenCounts, m.TokenIds = hashes[:0], counts[:0], ids[:0]
	}
}
