package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store/chaincache"
)

// Defaults of CachedOptions.
const (
	DefaultCacheBytes    = 256 << 20
	DefaultMaxStaleness  = 5 * time.Second
	DefaultMaxPartitions = 4096
	DefaultIdleAfter     = 10 * time.Minute
)

// CachedOptions says how much a lookup pod remembers, and for how long.
type CachedOptions struct {
	// Bytes bounds the memory of blocks; 0 = DefaultCacheBytes.
	Bytes int64
	// MaxStaleness is how long after the log was last heard of answers may come from
	// memory; 0 = DefaultMaxStaleness. Less than a second makes little sense: in
	// peace the log is heard of twice a second.
	MaxStaleness time.Duration
	// MaxPartitions bounds the partitions followed; the one asked for longest ago is
	// let go. 0 = DefaultMaxPartitions.
	MaxPartitions int
	// IdleAfter is when a partition that nobody asks for is let go; 0 = DefaultIdleAfter.
	IdleAfter time.Duration
}

// Cached is a Store in front of which a pod's memory stands. Lookups of what is
// remembered need no Redis; everything else is read through. It has the methods of
// Store that lookupsvc calls, and is safe for concurrent use.
//
// A partition is remembered from its first lookup on, and answers from memory once
// the follower has heard of its log. Whatever makes the memory doubtful drops it,
// and the next lookups read through until it is sure again.
type Cached struct {
	*Store
	o      CachedOptions
	memory *chaincache.Cache
	log    *slog.Logger
	lost   sampled   // lines about partitions that were dropped
	start  time.Time // what monotonic times count from

	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup
	closed bool // under mu: nothing is added to work any more

	// followed is replaced as a whole under mu, so that lookups read it without a lock.
	followed atomic.Pointer[map[Partition]*followed]
	mu       sync.Mutex
	banned   map[Partition]int64 // until when, ms since start
	follower *follower

	reads  singleflight.Group
	census censusCache
	absent absentees
	scrap  sync.Pool // of *matching
	count  cachedCounts
}

// NewCached puts a memory in front of s and starts to follow what is asked for.
// Close it before Redis' client.
func NewCached(s *Store, o CachedOptions) (*Cached, error) {
	if o.Bytes == 0 {
		o.Bytes = DefaultCacheBytes
	}
	if o.MaxStaleness == 0 {
		o.MaxStaleness = DefaultMaxStaleness
	}
	if o.MaxPartitions == 0 {
		o.MaxPartitions = DefaultMaxPartitions
	}
	if o.IdleAfter == 0 {
		o.IdleAfter = DefaultIdleAfter
	}
	if o.MaxStaleness < 0 || o.MaxPartitions < 0 || o.IdleAfter < 0 {
		return nil, errors.New("store: MaxStaleness, MaxPartitions and IdleAfter must not be negative")
	}
	memory, err := chaincache.New(o.Bytes)
	if err != nil {
		return nil, fmt.Errorf("store: cache bytes: %w", err)
	}
	c := &Cached{Store: s, o: o, memory: memory, log: s.log, start: time.Now(), banned: map[Partition]int64{}}
	c.followed.Store(&map[Partition]*followed{})
	c.scrap.New = func() any { return new(matching) }
	c.count.init()
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.follower = newFollower(c)
	c.work.Go(c.follower.run)
	return c, nil
}

// Close stops the follower and everything else that runs. Lookups go on, and read
// through. It may be called twice.
func (c *Cached) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
	for _, f := range *c.followed.Load() {
		c.drop(f, dropClosed)
	}
}

// spawn runs f, which ends soon after c.ctx does; false if the cache is closed.
func (c *Cached) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// elapsed is ms since start on the monotonic clock, which no time server turns back.
func (c *Cached) elapsed() int64 { return time.Since(c.start).Milliseconds() }

// find is the partition if it is followed.
func (c *Cached) find(p Partition) *followed { return (*c.followed.Load())[p] }

// Report takes all of rs, and this pod's next lookup sees it.
func (c *Cached) Report(ctx context.Context, rs ...*ranking.Report) error {
	// An error too may have changed something.
	err := c.Store.Report(ctx, rs...)
	var settling sync.WaitGroup
	settled := map[Partition]bool{}
	for i, r := range rs {
		c.census.filled(r.Tenant)
		p := Partition{Scope: r.Scope, Shard: ShardOf(r.Replica, c.shards)}
		switch {
		case settled[p]:
			continue
		case i == len(rs)-1: // almost always the only one
			c.settle(ctx, p)
		default:
			settling.Go(func() { c.settle(ctx, p) })
		}
		settled[p] = true
	}
	settling.Wait()
	return err
}

// Publish takes e, and this pod's next lookup sees it.
func (c *Cached) Publish(ctx context.Context, e *ranking.Event) error {
	err := c.Store.Publish(ctx, e)
	p := Partition{Scope: e.Scope, Shard: ShardOf(e.Replica, c.shards)}
	if f := c.settle(ctx, p); f == nil || !f.holds() {
		c.census.forget()
	}
	return err
}

// settle makes what this pod remembers agree with what it wrote.
func (c *Cached) settle(ctx context.Context, p Partition) *followed {
	c.absent.wrote(p)
	f := c.find(p)
	if f != nil {
		f.settle(ctx)
	}
	return f
}
