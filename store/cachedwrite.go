package store

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/store/chaincache"
)

// ownWrites makes what this pod wrote visible to its next lookup: after a write, the
// log is read from where the memory stands, beside the follower and without its
// pauses, and lookups read through until the memory is there. One reading serves all
// writes that were done before it was sent.
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
		before := f.memory.Position()
		end, entries, err := f.readOn(c.ctx, before)
		if err != nil {
			// Redis is away just after it took a write. Its memory is behind until we know.
			pause(c.ctx, settleStep)
			continue
		}
		c.take(f, entries)
		switch {
		case f.dropped.Load() || f.memory.Position().Compare(end) >= 0 && end.Compare(before) >= 0:
			return
		case end.Compare(before) < 0 || len(entries) == 0:
			// Another log than the one followed, or one trimmed beyond its position.
			c.drop(f, dropLost)
			return
		}
	}
}

// readOn reads the position of the last log entry, and at most readCount entries
// after a position.
func (f *followed) readOn(ctx context.Context, after chaincache.Position) (end chaincache.Position, entries []redis.XMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	var last *redis.StringCmd
	var log *redis.XStreamSliceCmd
	_, err = f.c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		// In this order: what is the end now is among the entries, or the log lost it.
		last = p.HGet(ctx, f.keys.Head(), headLogField)
		log = p.XRead(ctx, &redis.XReadArgs{Streams: []string{f.keys.Log(), after.String()}, Count: readCount, Block: -1})
		return nil
	})
	if err != nil && !isNil(err) {
		return end, nil, err
	}
	if id, err := last.Result(); err == nil {
		if end, err = parsePosition(id); err != nil {
			return end, nil, err
		}
	} else if !isNil(err) {
		return end, nil, err
	}
	streams, err := log.Result()
	if err != nil && !isNil(err) {
		return end, nil, err
	}
	if len(streams) > 0 {
		entries = streams[0].Messages
	}
	return end, entries, nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
