package follow

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"inferencecache.io/lookuptier/sidecar/zmtp"
)

const (
	retryMin = 50 * time.Millisecond
	retryMax = 2 * time.Second
)

// read keeps a subscription open and queues what comes. When the queue is full it stops
// reading: then batches wait at the engine, which drops what it cannot keep, and the gap is seen.
func (f *Follower) read(ctx context.Context) {
	wait := retryMin
	for epoch := uint64(1); ; epoch++ {
		c, err := f.subscribe(ctx)
		if err == nil {
			wait = retryMin
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			if f.push(ctx, message{kind: gotUp, epoch: epoch}) {
				err = f.receive(ctx, c, epoch)
			}
			stop()
			_ = c.Close()
		}
		if !f.push(ctx, message{kind: gotDown, epoch: epoch, err: err}) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)):
			wait = min(2*wait, retryMax)
		}
	}
}

func (f *Follower) subscribe(ctx context.Context) (*zmtp.Conn, error) {
	c, err := zmtp.Dial(ctx, f.opts.Endpoint, zmtp.Config{Socket: zmtp.SUB, Heartbeat: f.opts.Heartbeat})
	if err != nil {
		return nil, err
	}
	if err := c.Subscribe(f.opts.Topic); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (f *Follower) receive(ctx context.Context, c *zmtp.Conn, epoch uint64) error {
	for {
		frames, err := c.Recv()
		if err != nil {
			return err
		}
		m := message{epoch: epoch}
		if n := len(frames); n == 3 && len(frames[1]) == 8 {
			m.seq, m.payload = binary.BigEndian.Uint64(frames[1]), frames[2]
		} else {
			m.kind, m.err = gotGarbage, fmt.Errorf("%d frames: want topic, an 8-byte sequence number, payload", n)
		}
		if !f.push(ctx, m) {
			return ctx.Err()
		}
	}
}

func (f *Follower) push(ctx context.Context, m message) bool {
	if f.budget.Acquire(ctx, m.weight(f.opts.QueueBytes)) != nil {
		return false
	}
	select {
	case f.queue <- m:
		return true
	case <-ctx.Done():
		return false
	}
}
