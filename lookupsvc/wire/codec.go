package wire

import (
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Codec speaks protobuf as gRPC's own codec does. A server takes it with
// grpc.ForceServerCodecV2; it is not registered, so the clients of a process keep theirs.
type Codec struct{}

var stock = encoding.GetCodecV2(protocodec.Name)

// Name is that of the wire format, which is protobuf's.
func (Codec) Name() string { return protocodec.Name }

// Marshal writes v, a protobuf message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	if reply, ok := v.(*pb.LookupRouteResponse); ok {
		if data, ok := marshalReply(reply); ok {
			return data, nil
		}
	}
	return stock.Marshal(v)
}

// Unmarshal reads v, a protobuf message or a *Request.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if request, ok := v.(*Request); ok {
		return request.read(data)
	}
	return stock.Unmarshal(data, v)
}
