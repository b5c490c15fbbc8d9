package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

var (
	// ErrClosed is returned by a Reporter that takes nothing more.
	ErrClosed = errors.New("client: the reporter is closed")
	// ErrDropped marks what was given up because the queue was full.
	ErrDropped = errors.New("client: dropped, the queue is full")
	// ErrRejected marks what was given up because no pod would ever take it.
	ErrRejected = errors.New("client: rejected")
)

// mostUpdateBytes is what a pod receives in one message.
const mostUpdateBytes = 16 << 20

// Reporter brings what an engine's cache holds to the index, in the order in which
// it was given. Updates that follow one another share a call; an attempt that fails
// for want of a pod, or of its Redis, is made again until it is acknowledged.
// Taking an update twice changes nothing, so one that may have been taken is sent
// again. It is safe for many goroutines; Close ends it.
type Reporter struct {
	client *Client
	o      ReporterOptions
	cancel context.CancelFunc // ends the sender, wherever it is
	ended  chan struct{}      // closed when the sender has ended

	mu      sync.Mutex
	queue   []item
	sending []item // taken from the queue, not settled yet
	given   int64  // how many items ever came
	hurry   int    // how many wait for the queue to empty
	closed  bool
	// changed is closed and replaced at every change that somebody may wait for.
	changed chan struct{}
	stats   ReporterStats
}

// NewReporter starts a reporter. Close it before the client.
func (c *Client) NewReporter(o ReporterOptions) (*Reporter, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reporter{client: c, o: o, cancel: cancel, ended: make(chan struct{}), changed: make(chan struct{})}
	go r.run(ctx)
	return r, nil
}

// Report queues an update, which is the Reporter's from then on: do not change it. An
// error means that it was not queued: ErrRequest for one that no pod could take,
// ErrClosed, or ctx's while it waited for room. An update without a timestamp whose
// first attempt fails is dated to when it was queued.
func (r *Reporter) Report(ctx context.Context, u *pb.CacheStateUpdate) error {
	if u == nil {
		return fmt.Errorf("%w: the update is nil", ErrRequest)
	}
	if err := sensibleUpdate(u); err != nil {
		return err
	}
	size := proto.Size(u)
	if size > mostUpdateBytes {
		return fmt.Errorf("%w: an update of %d bytes; send it in parts of at most %d", ErrRequest, size, mostUpdateBytes)
	}
	return r.add(ctx, item{update: u, bytes: size})
}

// Publish queues an event behind the updates that were queued before it, with Report's
// errors.
func (r *Reporter) Publish(ctx context.Context, e *pb.CacheEvent) error {
	if e == nil {
		return fmt.Errorf("%w: the event is nil", ErrRequest)
	}
	return r.add(ctx, item{event: e})
}

func (r *Reporter) add(ctx context.Context, it item) error {
	r.mu.Lock()
	for !r.closed && len(r.queue) >= r.o.Queue && r.o.WhenFull == Block {
		if err := r.await(ctx); err != nil {
			r.mu.Unlock()
			return fmt.Errorf("client: the queue is full: %w", err)
		}
	}
	if r.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	dropped := 0
	for len(r.queue) >= r.o.Queue {
		r.pop(1)
		dropped++
	}
	r.stats.Dropped += int64(dropped)
	r.given++
	it.number, it.at = r.given, time.Now()
	r.queue = append(r.queue, it)
	r.tell()
	r.mu.Unlock()
	for range dropped {
		r.o.OnError(ErrDropped)
	}
	return nil
}

// Flush waits until everything given before is settled: acknowledged, or given up.
func (r *Reporter) Flush(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flush(ctx, r.given)
}

// flush is Flush for the first last items; r.mu is held.
func (r *Reporter) flush(ctx context.Context, last int64) error {
	r.hurry++
	defer func() { r.hurry-- }()
	r.tell()
	for r.oldest() <= last {
		if err := r.await(ctx); err != nil {
			return fmt.Errorf("client: %d updates and events are not acknowledged: %w", len(r.queue)+len(r.sending), err)
		}
		select {
		case <-r.ended:
			if r.oldest() <= last {
				return ErrClosed
			}
		default:
		}
	}
	return nil
}

// Close takes nothing more, waits until what it has is settled or ctx ends, and stops.
// An error tells how much was not acknowledged. Calls after the first wait for the same.
func (r *Reporter) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	err := r.flush(ctx, r.given)
	r.mu.Unlock()
	r.cancel()
	<-r.ended
	return err
}

// Stats is what became of everything so far.
func (r *Reporter) Stats() ReporterStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Waiting = len(r.queue) + len(r.sending)
	return s
}

// The rest is called with r.mu held.

// await lets go of the lock until something changes.
func (r *Reporter) await(ctx context.Context) error {
	changed := r.changed
	r.mu.Unlock()
	defer r.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reporter) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// oldest is the number of the first item that is not settled, or of the next to come.
func (r *Reporter) oldest() int64 {
	switch {
	case len(r.sending) > 0:
		return r.sending[0].number
	case len(r.queue) > 0:
		return r.queue[0].number
	default:
		return r.given + 1
	}
}

func (r *Reporter) pop(n int) []item {
	taken := append([]item(nil), r.queue[:n]...)
	clear(r.queue[:n])
	r.queue = r.queue[n:]
	return taken
}
