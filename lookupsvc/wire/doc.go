// Package wire reads and writes the messages of LookupRoute faster than the
// general protobuf code does: a request of 256 blocks is 256 small allocations to
// proto.Unmarshal, and one pass over the received bytes here.
//
// The bytes on the wire are the contract's, in both directions. Codec is a gRPC
// codec for servers; it treats two messages itself, a Request that LookupRoute's
// handler asks for and the reply, and leaves every other to protobuf. Scan takes
// only what well-behaved clients send. Whatever else a request contains, an unknown
// field, a field of another wire type, bytes that are no message, goes to
// proto.Unmarshal from its first byte, so that there is one judge of odd input.
package wire
