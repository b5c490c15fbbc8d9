package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The follower reads the logs of all partitions that this pod remembers: on one
// connection to each Redis node, with one blocking read for all of them.
//
// A Cluster refuses a command about keys of two slots. There, a node's partitions
// are read in one pipeline every few milliseconds instead, unless there is only one.

const (
	// blockFor is how long a read waits for news. Its end tells that all is quiet, and
	// a new partition waits for it to be taken in.
	blockFor = 500 * time.Millisecond
	// hungAfter is how much longer an answer may take before Redis counts as away.
	hungAfter = time.Second
	// pace and pacePer bound how often a busy log is read: a read costs Redis as much
	// as there are partitions in it, and entries that come together are applied together.
	pace     = time.Millisecond
	pacePer  = 10 * time.Microsecond
	maxPace  = 20 * time.Millisecond
	pollEach = 4 * time.Millisecond // pace of a node that cannot be waited for
	// readCount is how many entries of one log are read at a time.
	readCount = 256
	banFor    = 10 * time.Second
	movedFor  = 200 * time.Millisecond
	retryMin  = 20 * time.Millisecond
	retryMax  = 500 * time.Millisecond
)

type follower struct {
	c     *Cached
	wake  chan struct{}
	nodes map[*redis.Client]*node // run's only

	mu  sync.Mutex
	new []*followed
}

func newFollower(c *Cached) *follower {
	return &follower{c: c, nodes: map[*redis.Client]*node{}, wake: make(chan struct{}, 1)}
}

// joined takes a partition in. The caller holds Cached.mu.
func (f *follower) joined(p *followed) {
	f.mu.Lock()
	f.new = append(f.new, p)
	f.mu.Unlock()
	f.signal()
}

func (f *follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run hands partitions to their nodes, and lets idle ones go.
func (f *follower) run() {
	tick := time.NewTicker(max(f.c.o.IdleAfter/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-f.c.ctx.Done():
			return
		case <-f.wake:
		case <-tick.C:
			f.letIdleGo()
			f.retireNodes()
			continue
		}
		f.mu.Lock()
		joined := f.new
		f.new = nil
		f.mu.Unlock()
		for _, p := range joined {
			f.assign(p)
		}
	}
}

func (f *follower) letIdleGo() {
	idle := int64(f.c.o.IdleAfter / time.Second)
	now := f.c.elapsed() / 1000
	for _, p := range *f.c.followed.Load() {
		if now-p.asked.Load() > idle {
			f.c.drop(p, dropIdle)
		}
	}
}

// assign gives a partition to the node that has its log.
func (f *follower) assign(p *followed) {
	client, cluster, err := f.client(p)
	if err != nil {
		f.c.drop(p, dropAway)
		return
	}
	n := f.nodes[client]
	if n == nil {
		n = &node{c: f.c, client: client, cluster: cluster, wake: make(chan struct{}, 1)}
		if !f.c.spawn(n.run) {
			return
		}
		f.nodes[client] = n
	}
	n.join(p)
}

// client is the one that reaches the node of a partition. Other clients than
// go-redis' own three do not occur: the Store's is made by Dial.
func (f *follower) client(p *followed) (client *redis.Client, cluster bool, err error) {
	switch rdb := f.c.rdb.(type) {
	case *redis.Client:
		return rdb, false, nil
	case *redis.ClusterClient:
		ctx, cancel := context.WithTimeout(f.c.ctx, readFor)
		defer cancel()
		client, err = rdb.MasterForKey(ctx, p.keys.Log())
		return client, true, err
	default:
		return nil, false, errNotFollowable
	}
}

// retireNodes stops the nodes that have nothing left to read.
func (f *follower) retireNodes() {
	maps.DeleteFunc(f.nodes, func(_ *redis.Client, n *node) bool { return n.retire() })
}

// node is one Redis node and the partitions that are read from it.
type node struct {
	c       *Cached
	client  *redis.Client
	cluster bool
	wake    chan struct{}
	out     bool // out of reach, and the log says so

	mu      sync.Mutex
	members []*followed
	retired bool
}

func (n *node) join(p *followed) {
	n.mu.Lock()
	n.members = append(n.members, p)
	n.mu.Unlock()
	n.signal()
}

func (n *node) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// present are the members that were not dropped.
func (n *node) present() []*followed {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members = slices.DeleteFunc(n.members, func(p *followed) bool { return p.dropped.Load() })
	return slices.Clone(n.members)
}

// retire stops the node if it has no members; assign makes a new one if need be.
// Only the follower calls both, so no member joins a retired node.
func (n *node) retire() bool {
	if len(n.present()) > 0 {
		return false
	}
	n.mu.Lock()
	n.retired = true
	n.mu.Unlock()
	n.signal()
	return true
}
