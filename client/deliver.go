package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

const firstBackoff = 50 * time.Millisecond

var errNotAccepted = errors.New("client: the pod did not accept it")

// run is the sender: one batch at a time, so that nothing overtakes.
func (r *Reporter) run(ctx context.Context) {
	defer close(r.ended)
	for {
		batch := r.next(ctx)
		if batch == nil {
			return
		}
		acknowledged, rejected := r.deliver(ctx, batch)
		r.mu.Lock()
		if acknowledged+rejected == len(batch) {
			r.sending = nil
		} // else the sender ends, and what it had stays unsettled
		r.stats.Acknowledged += int64(acknowledged)
		r.stats.Rejected += int64(rejected)
		r.tell()
		r.mu.Unlock()
	}
}

// next takes the next batch: one event, or the updates up to the next event. It is
// nil when the sender is to end.
func (r *Reporter) next(ctx context.Context) []item {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 {
		if r.await(ctx) != nil {
			return nil
		}
	}
	lingering, done := context.WithDeadline(ctx, r.queue[0].at.Add(r.o.Linger))
	defer done()
	for r.hurry == 0 && !r.closed {
		if _, full := r.batch(); full || r.await(lingering) != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	n, _ := r.batch()
	r.sending = r.pop(n)
	r.tell()
	return r.sending
}

// batch counts the items at the head of the queue that go together, and tells
// whether more would not.
func (r *Reporter) batch() (n int, full bool) {
	bytes := 0
	for i, it := range r.queue {
		if it.event != nil {
			return max(1, i), true
		}
		if bytes += it.bytes; i > 0 && bytes > r.o.BatchBytes {
			return i, true
		}
		if i+1 >= r.o.Batch {
			return i + 1, true
		}
	}
	return len(r.queue), bytes >= r.o.BatchBytes
}

// deliver sends a batch until it is acknowledged. A batch that no pod would ever take
// is sent piece by piece, so that only the piece at fault is given up. The sums are
// short of the batch if ctx ended.
func (r *Reporter) deliver(ctx context.Context, batch []item) (acknowledged, rejected int) {
	backoff := firstBackoff
	for {
		err := r.send(ctx, batch)
		switch {
		case err == nil:
			return len(batch), 0
		case ctx.Err() != nil:
			return 0, 0
		case hopeless(err) && len(batch) == 1:
			r.o.OnError(fmt.Errorf("%w: %w", ErrRejected, err))
			return 0, 1
		case hopeless(err):
			for i := range batch {
				a, b := r.deliver(ctx, batch[i:i+1])
				acknowledged, rejected = acknowledged+a, rejected+b
			}
			return acknowledged, rejected
		}
		r.o.OnError(err)
		r.mu.Lock()
		r.stats.Failed++
		r.mu.Unlock()
		date(batch)
		// Somewhere between half and all of it, so that producers do not come in step.
		pause := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return 0, 0
		}
		backoff = min(2*backoff, r.o.MaxBackoff)
	}
}

// hopeless tells errors that another attempt will not cure: the message itself is at
// fault, or may be.
func hopeless(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented, codes.PermissionDenied, codes.Internal:
		return true
	default:
		return false
	}
}

// date gives updates and events that say "now" the time at which that was true.
func date(batch []item) {
	for i := range batch {
		it := &batch[i]
		if it.update != nil && it.update.GetTimestampUs() == 0 {
			it.update = sameUpdate(it.update)
			it.update.TimestampUs = it.at.UnixMicro()
		}
		if it.event != nil && it.event.GetTimestampUs() == 0 {
			it.event = proto.CloneOf(it.event)
			it.event.TimestampUs = it.at.UnixMicro()
		}
	}
}

// send makes one attempt.
func (r *Reporter) send(ctx context.Context, batch []item) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if batch[0].event != nil {
		return acknowledged(r.client.rpc.PublishEvent(ctx, batch[0].event))
	}
	packs := r.client.packing.on()
	ack, packed, err := r.stream(ctx, batch, packs)
	if err != nil {
		return err
	}
	r.client.packing.saw(ack.GetPackedChains())
	if packed && !ack.GetPackedChains() {
		// An older pod, which has dropped the packed entries: once more in plain.
		ack, _, err = r.stream(ctx, batch, false)
	}
	return acknowledged(ack, err)
}

// stream sends updates in one call, and tells whether any chain in it was packed.
func (r *Reporter) stream(ctx context.Context, batch []item, packs bool) (_ *pb.Ack, packed bool, _ error) {
	stream, err := r.client.rpc.ReportCacheState(ctx)
	if err != nil {
		return nil, false, err
	}
	for i := range batch {
		u := batch[i].update
		if packs {
			var did bool
			u, did = packUpdate(u)
			packed = packed || did
		} else {
			u = unpackUpdate(u)
		}
		if err := stream.Send(u); errors.Is(err, io.EOF) {
			break // the reason comes with the reply
		} else if err != nil {
			return nil, packed, err
		}
	}
	ack, err := stream.CloseAndRecv()
	return ack, packed, err
}

// acknowledged is nil if an index took what was sent.
func acknowledged(ack *pb.Ack, err error) error {
	if err == nil && !ack.GetAccepted() {
		return fmt.Errorf("%w: %q", errNotAccepted, ack.GetReasonCode())
	}
	return err
}
