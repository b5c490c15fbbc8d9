package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Result is the answer to a lookup; there always is one.
type Result struct {
	// Replicas are the engine replicas to prefer, best first; empty = no hint: route as
	// if there were no lookup tier.
	Replicas []*pb.ReplicaScore
	// Reason says what the hint rests on, or why there is none. A code that this version
	// does not know is NoHint here; a lookup that ended locally by its deadline or its
	// context is Timeout.
	Reason Reason
	// Code is the reason code that the pod sent; empty if no reply came.
	Code string
	// Err is why no reply came, or why it does not count; nil after any reply with a code
	// that this version knows.
	Err error
	// Handled is how long the pod worked on it.
	Handled time.Duration
	// TokenIDs are the prompt's, if the pod tokenized its text.
	TokenIDs []uint32
}

// Best is the id of the replica to prefer, and false without a hint.
func (r *Result) Best() (string, bool) {
	if len(r.Replicas) == 0 {
		return "", false
	}
	return r.Replicas[0].GetReplicaId(), true
}

// ErrUnknownCode marks a reply with a reason code that this version does not know.
var ErrUnknownCode = errors.New("client: unknown reason code")

// ErrRequest marks a request that no pod could answer and that was not sent.
var ErrRequest = errors.New("client: bad request")

// LookupRoute asks which replicas hold the request's prefix. It takes at most the
// client's Timeout, and never more than ctx allows; req is only read, until it
// returns.
func (c *Client) LookupRoute(ctx context.Context, req *pb.LookupRouteRequest) Result {
	if err := sensible(req); err != nil {
		return Result{Reason: NoHint, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.ask(ctx, req)
	if err != nil {
		return unanswered(ctx, err)
	}
	r := Result{
		Code: resp.GetReasonCode(), Reason: Reason(resp.GetReasonCode()),
		Handled: time.Duration(resp.GetLookupLatencyUs()) * time.Microsecond, TokenIDs: resp.GetTokenIds(),
	}
	known, names := r.Reason.known()
	switch {
	case !known:
		r.Reason, r.Err = NoHint, fmt.Errorf("%w %q: it counts as %s", ErrUnknownCode, r.Code, NoHint)
	case names:
		r.Replicas = resp.GetReplicaScores()
	default:
		c.mismatches.saw(r.Reason, req)
	}
	return r
}

// sensible checks what could not be turned into the form that a pod takes.
func sensible(req *pb.LookupRouteRequest) error {
	if req == nil {
		return fmt.Errorf("%w: it is nil", ErrRequest)
	}
	if len(req.GetPackedBlockHashes()) == 0 {
		return nil
	}
	if len(req.GetBlockHashes()) > 0 {
		return fmt.Errorf("%w: set block_hashes or packed_block_hashes, not both", ErrRequest)
	}
	return checkPacked(req.GetPackedBlockHashes(), req.GetPackedHashBytes(), req.GetBlockTokenCounts())
}

// ask sends req in the form that the pods take.
func (c *Client) ask(ctx context.Context, req *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	if c.packing.on() {
		sent, packed := packRequest(req)
		resp, err := c.rpc.LookupRoute(ctx, sent)
		if err != nil {
			return nil, err
		}
		c.packing.saw(resp.GetPackedChains())
		if resp.GetPackedChains() || !packed {
			return resp, nil
		}
		// An older pod: it has not seen the chain.
	}
	resp, err := c.rpc.LookupRoute(ctx, unpackRequest(req))
	if err != nil {
		return nil, err
	}
	c.packing.saw(resp.GetPackedChains())
	return resp, nil
}

// unanswered is the result of a lookup that got no reply.
func unanswered(ctx context.Context, err error) Result {
	if ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded {
		return Result{Reason: Timeout, Err: err}
	}
	return Result{Reason: NoHint, Err: err}
}
