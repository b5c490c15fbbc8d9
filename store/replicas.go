package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
	"inferencecache.io/lookuptier/store/chaincache"
)

// Replicas reads walks from the replicas of a Sentinel group or a Cluster. All else, the
// change log included, stays with the masters: a replica may lag behind, and what a
// pod's memory stands on must not go back. docs/consistency.md says what that means.
type Replicas struct {
	sentinel *redis.Client        // its connections lead to replicas, or to the master if there is none
	cluster  *redis.ClusterClient // its nodes' connections are READONLY
	// avoided is until when the master is asked instead, Unix ms.
	avoided atomic.Int64
	reads   *prometheus.CounterVec
}

const (
	// avoidFor is how long replicas are left alone after one failed: meanwhile Sentinel or
	// the Cluster finds out.
	avoidFor = time.Second
	// replicaShare is the part of a lookup's time that a replica gets before the master is
	// asked; replicaWait is the time without a budget.
	replicaShare = 3
	replicaWait  = 250 * time.Millisecond
)

// ErrNoReplicas: the URL names one server, and nobody who would know its replicas.
var ErrNoReplicas = errors.New("store: one server by itself tells of no replicas")

// DialReplicas makes a client of the replicas of what the URL names: ErrNoReplicas if
// that is neither a Sentinel group nor a Cluster. It connects to nothing yet. The
// caller closes it.
func DialReplicas(o DialOptions) (*Replicas, error) {
	e, u, err := o.universal()
	if err != nil {
		return nil, err
	}
	r := &Replicas{reads: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "inferencecache", Name: "replica_reads_total",
		Help: "Walks that were sent to a replica, by what came of it."}, []string{"outcome"})}
	for _, outcome := range []string{readUsed, readBehind, readFailed} {
		r.reads.WithLabelValues(outcome)
	}
	switch {
	case e.Cluster:
		c := u.Cluster()
		c.ClusterStateReloadInterval = clusterMapAge
		c.ReadOnly = true
		r.cluster = redis.NewClusterClient(c)
	case e.MasterName != "":
		f := u.Failover()
		f.ReplicaOnly = true
		r.sentinel = redis.NewFailoverClient(f)
	default:
		return nil, fmt.Errorf("redis URL %s: %w", Redacted(o.URL), ErrNoReplicas)
	}
	return r, nil
}

// Values of the label outcome: the view was used, it was older than what is known
// already, or there was none. After the last two the master was asked.
const (
	readUsed   = "used"
	readBehind = "behind"
	readFailed = "failed"
)

// Describe implements prometheus.Collector.
func (r *Replicas) Describe(ch chan<- *prometheus.Desc) { r.reads.Describe(ch) }

// Collect implements prometheus.Collector.
func (r *Replicas) Collect(ch chan<- prometheus.Metric) { r.reads.Collect(ch) }

// Close ends the connections.
func (r *Replicas) Close() error {
	if r.cluster != nil {
		return r.cluster.Close()
	}
	return r.sentinel.Close()
}

// of is a client of a replica that has the key.
func (r *Replicas) of(ctx context.Context, key string) (scripts.TxPiper, error) {
	if r.cluster == nil {
		return r.sentinel, nil
	}
	// A transaction of the Cluster's client goes to the master, whatever its options say;
	// one of a node's own client goes to that node.
	return r.cluster.SlaveForKey(ctx, key)
}

// failed leaves the replicas alone for a while.
func (r *Replicas) failed(ctx context.Context) {
	r.reads.WithLabelValues(readFailed).Inc()
	r.avoided.Store(time.Now().Add(avoidFor).UnixMilli())
	if r.cluster != nil {
		r.cluster.ReloadState(ctx) // in the background
	}
}

// look is Read for a lookup: from a replica if there are some and one has a view that is
// not older than since, else from the master. A zero since takes any view with a log
// position; a partition without one may be one that the replica has not heard of yet.
func (s *Store) look(ctx context.Context, p Partition, sp ranking.Space, hashes [][]byte, since chaincache.Position) (View, error) {
	if r := s.replicas; r != nil && time.Now().UnixMilli() >= r.avoided.Load() {
		v, err := s.lookAtReplica(ctx, p, sp, hashes)
		switch at, bad := parsePosition(v.LogID); {
		case err != nil:
			if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
				r.failed(context.WithoutCancel(ctx))
			}
		case bad == nil && v.LogID != "" && at.Compare(since) >= 0:
			r.reads.WithLabelValues(readUsed).Inc()
			v.replica = true
			return v, nil
		default:
			r.reads.WithLabelValues(readBehind).Inc()
		}
		if ctx.Err() != nil {
			return View{}, ctx.Err()
		}
	}
	return s.Read(ctx, p, sp, hashes)
}

func (s *Store) lookAtReplica(ctx context.Context, p Partition, sp ranking.Space, hashes [][]byte) (View, error) {
	wait := replicaWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = time.Until(deadline) / replicaShare
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	rdb, err := s.replicas.of(ctx, p.Keys().Head())
	if err != nil {
		return View{}, fmt.Errorf("read %v: %w", p, err)
	}
	return s.readFrom(ctx, rdb, p, sp, hashes)
}

// readSince is look for a read that goes into memory. A replica's view only fits if the
// memory stands at a position to hold it against, and if that covers all that this pod
// wrote; otherwise the master is asked, as it is when a partition is read for the first time.
func (c *Cached) readSince(ctx context.Context, p Partition, sp ranking.Space, hashes [][]byte, f *followed, since chaincache.Position) (View, error) {
	if f == nil || since == (chaincache.Position{}) || f.behind.Load() != 0 {
		return c.Read(ctx, p, sp, hashes)
	}
	return c.look(ctx, p, sp, hashes, since)
}
