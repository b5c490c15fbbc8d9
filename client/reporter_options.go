package client

import (
	"cmp"
	"fmt"
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// WhenFull is what a Reporter does with something new when its queue is full.
type WhenFull int

const (
	// Block lets the caller wait until there is room, or its context ends.
	Block WhenFull = iota
	// DropOldest gives up what has waited longest, and counts it. What a dropped
	// report said is missing from the index until it is reported again; what a dropped
	// event said stays untrue there until it expires.
	DropOldest
)

// ReporterOptions of a Reporter; the zero value is good for an engine or two.
type ReporterOptions struct {
	// Batch is how many updates share one call and one acknowledgement; 0 = 256.
	Batch int
	// BatchBytes bounds a batch by its size; 0 = 1 MiB. An update that is larger by
	// itself is sent alone, up to 16 MiB.
	BatchBytes int
	// Linger is how long a batch that is not full waits for more; 0 = 10 ms, negative =
	// not at all.
	Linger time.Duration
	// Queue is how many updates and events wait at most, besides those on their way;
	// 0 = 4,096.
	Queue int
	// WhenFull is what happens to more.
	WhenFull WhenFull
	// Timeout bounds one attempt at a batch; 0 = 10 s.
	Timeout time.Duration
	// MaxBackoff bounds the pause between attempts, which starts at 50 ms and doubles;
	// 0 = 5 s.
	MaxBackoff time.Duration
	// OnError is told of each attempt that failed, and of what was given up (ErrDropped,
	// ErrRejected); nil = nobody. It is called where that happens, in the Reporter's
	// goroutine or in Report, and must return soon.
	OnError func(error)
}

func (o ReporterOptions) filled() (ReporterOptions, error) {
	for name, n := range map[string]int{"Batch": o.Batch, "BatchBytes": o.BatchBytes, "Queue": o.Queue} {
		if n < 0 {
			return o, fmt.Errorf("client: ReporterOptions.%s of %d is not possible; give more than 0, or 0 for the default", name, n)
		}
	}
	for name, d := range map[string]time.Duration{"Timeout": o.Timeout, "MaxBackoff": o.MaxBackoff} {
		if d < 0 {
			return o, fmt.Errorf("client: ReporterOptions.%s of %v is not possible; give more than 0, or 0 for the default", name, d)
		}
	}
	o.Batch = cmp.Or(o.Batch, 256)
	o.BatchBytes = cmp.Or(o.BatchBytes, 1<<20)
	o.Linger = max(0, cmp.Or(o.Linger, 10*time.Millisecond))
	o.Queue = cmp.Or(o.Queue, 4096)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 5*time.Second)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return o, nil
}

// ReporterStats count updates and events since the Reporter was made.
type ReporterStats struct {
	// Waiting are queued or on their way.
	Waiting int
	// Acknowledged are in the index.
	Acknowledged int64
	// Dropped were given up because the queue was full.
	Dropped int64
	// Rejected were given up because no pod would ever take them.
	Rejected int64
	// Failed attempts at a batch, each made again.
	Failed int64
}

// item is one update or one event.
type item struct {
	number int64 // in the order of their arrival
	at     time.Time
	update *pb.CacheStateUpdate
	event  *pb.CacheEvent
	bytes  int
}
