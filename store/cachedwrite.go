package store

import (
	"context"
	"sync"
	"time"

	"inferencecache.io/lookuptier/store/chaincache"
)

// ownWrites makes what this pod wrote visible to its next lookup: after a write, the
// end of the log is asked for, and lookups read through until the memory is there.
// One question serves all writes that were done before it was sent.
type ownWrites struct {
	mu      sync.Mutex
	next    chan struct{} // closed when the next round is over; nil = nobody waits
	running bool
}

const (
	// settleFor is how long a write waits for the memory. After that it returns, and
	// lookups read through until the memory has the write.
	settleFor  = 50 * time.Millisecond
	settleStep = 100 * time.Millisecond
)

// settle returns when the memory has what this pod wrote, or lookups go around it.
func (f *followed) settle(ctx context.Context) {
	o := &f.own
	f.behind.Add(1)
	o.mu.Lock()
	if o.next == nil {
		o.next = make(chan struct{})
	}
	done := o.next
	if !o.running {
		o.running = f.c.spawn(f.settleRounds)
	}
	running := o.running
	o.mu.Unlock()
	if !running {
		return // closed: nothing is answered from memory any more
	}

	limit := time.NewTimer(settleFor)
	defer limit.Stop()
	select {
	case <-done:
		f.behind.Add(-1)
		return
	case <-ctx.Done():
	case <-limit.C:
	}
	f.c.spawn(func() {
		<-done // rounds end when the cache is closed
		f.behind.Add(-1)
	})
}

func (f *followed) settleRounds() {
	o := &f.own
	for {
		o.mu.Lock()
		done := o.next
		o.next = nil
		if done == nil {
			o.running = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		f.reachEnd()
		close(done)
	}
}

// reachEnd returns when the memory has reached what is the end of the log now, or is dropped.
func (f *followed) reachEnd() {
	c := f.c
	for !f.dropped.Load() && c.ctx.Err() == nil {
		end, err := f.logEnd(c.ctx)
		if err == nil {
			select {
			case <-f.memory.Reached(end):
			case <-c.ctx.Done():
			}
			return
		}
		// Redis is away just after it took a write. Its memory is behind until we know.
		pause(c.ctx, settleStep)
	}
}

// logEnd asks Redis for the position of the partition's last log entry.
func (f *followed) logEnd(ctx context.Context) (chaincache.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	id, err := f.c.rdb.HGet(ctx, f.keys.Head(), headLogField).Result()
	if err != nil {
		if isNil(err) {
			return chaincache.Position{}, nil
		}
		return chaincache.Position{}, err
	}
	return parsePosition(id)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
