package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const clusterSlots = 16384

// ClusterSet is a Redis Cluster. The first Masters nodes own the slots at the
// start; the others, if any, are their replicas in the same order.
type ClusterSet struct {
	t       testing.TB
	Nodes   []*Server
	Masters int
}

// Cluster starts n masters without replicas and waits until every node says
// that the cluster is up. Slots of a lost node stay lost, and the others go on
// serving theirs.
func Cluster(t testing.TB, n int, opts ...Option) *ClusterSet {
	t.Helper()
	// Nothing can fail over, so a short timeout would only mistake a busy
	// machine for a lost node.
	return startCluster(t, n, 0, 5000, opts)
}

// ClusterWithReplicas starts n masters and one replica of each, which takes
// over a few seconds after its master is gone.
func ClusterWithReplicas(t testing.TB, n int, opts ...Option) *ClusterSet {
	t.Helper()
	return startCluster(t, n, n, 2000, opts)
}

func startCluster(t testing.TB, masters, replicas, nodeTimeoutMS int, opts []Option) *ClusterSet {
	t.Helper()
	if masters < 1 || masters > 16 {
		t.Fatalf("a cluster of %d masters: want 1 to 16", masters)
	}
	set := &ClusterSet{t: t, Masters: masters}
	for i := range masters + replicas {
		set.Nodes = append(set.Nodes, startClusterNode(t, fmt.Sprintf("cluster-node-%d", i), nodeTimeoutMS, opts))
	}
	ctx, cancel := context.WithTimeout(context.Background(), gatherLimit)
	defer cancel()
	for i, n := range set.Nodes {
		if err := set.introduce(ctx, i, n); err != nil {
			t.Fatalf("making a cluster: %v", err)
		}
	}
	for i := range replicas {
		Eventually(t, gatherLimit, "a replica joining", func() error { return set.attach(i+masters, i) })
	}
	set.WaitOK()
	return set
}

func startClusterNode(t testing.TB, name string, nodeTimeoutMS int, opts []Option) *Server {
	t.Helper()
	// The bus gets a port of its own: the default, 10000 above, may be taken.
	return startServer(t, name, append(opts[:len(opts):len(opts)], WithConfig(
		"cluster-enabled yes",
		"cluster-config-file nodes.conf",
		fmt.Sprintf("cluster-port %d", FreePort(t)),
		fmt.Sprintf("cluster-node-timeout %d", nodeTimeoutMS),
		"cluster-require-full-coverage no",
		"cluster-allow-replica-migration no",
		"cluster-replica-validity-factor 0",
	))...)
}

// introduce gives node i its epoch and, if it is a master, its share of the
// slots, and tells it of the first node.
func (s *ClusterSet) introduce(ctx context.Context, i int, n *Server) error {
	c := redis.NewClient(n.Options())
	defer c.Close()
	if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		return fmt.Errorf("epoch of %s: %w", n.name, err)
	}
	if i < s.Masters {
		first, last := clusterSlots*i/s.Masters, clusterSlots*(i+1)/s.Masters-1
		if err := c.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last).Err(); err != nil {
			return fmt.Errorf("slots of %s: %w", n.name, err)
		}
	}
	if i > 0 {
		bus, err := s.busPort(ctx)
		if err != nil {
			return err
		}
		if err := c.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", s.Nodes[0].Port(), bus).Err(); err != nil {
			return fmt.Errorf("%s meeting the first node: %w", n.name, err)
		}
	}
	return nil
}

func (s *ClusterSet) busPort(ctx context.Context) (string, error) {
	c := redis.NewClient(s.Nodes[0].Options())
	defer c.Close()
	v, err := c.ConfigGet(ctx, "cluster-port").Result()
	if err != nil {
		return "", fmt.Errorf("bus port of the first node: %w", err)
	}
	return v["cluster-port"], nil
}

func (s *ClusterSet) attach(replica, master int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	m := redis.NewClient(s.Nodes[master].Options())
	defer m.Close()
	id, err := m.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	r := redis.NewClient(s.Nodes[replica].Options())
	defer r.Close()
	return r.ClusterReplicate(ctx, id).Err()
}

// WaitOK waits until every node that runs calls the cluster ok, knows all the
// nodes and sees every slot served, and every replica is in step.
func (s *ClusterSet) WaitOK() {
	s.t.Helper()
	Eventually(s.t, gatherLimit, "a cluster coming up", func() error {
		for i, n := range s.Nodes {
			if !n.proc.Running() {
				continue
			}
			if err := s.ok(n); err != nil {
				return err
			}
			if i >= s.Masters && n.isMaster() != nil {
				if err := n.follows(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s *ClusterSet) ok(n *Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c := redis.NewClient(n.Options())
	defer c.Close()
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d", clusterSlots), fmt.Sprintf("cluster_known_nodes:%d", len(s.Nodes))} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("%s: not %s", n.name, want)
		}
	}
	return nil
}

// Addrs are the nodes' addresses.
func (s *ClusterSet) Addrs() []string {
	var out []string
	for _, n := range s.Nodes {
		out = append(out, n.Addr())
	}
	return out
}

// URL is how a program is told of the cluster: its nodes' addresses, comma separated.
func (s *ClusterSet) URL() string {
	return strings.Replace(s.Nodes[0].URL(), s.Nodes[0].Addr(), strings.Join(s.Addrs(), ","), 1)
}

// Client follows slots from node to node; closed when the test ends.
func (s *ClusterSet) Client() *redis.ClusterClient {
	o := s.Nodes[0].Options()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: s.Addrs(), Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, PoolSize: o.PoolSize, DisableIdentity: true, ContextTimeoutEnabled: true,
		// A dead master answers no MOVED, so only a reload of the map finds its
		// successor; go-redis does that once a minute by default.
		ClusterStateReloadInterval: time.Second,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Owner is the node that owns the slot of key now, as the first node that runs says.
func (s *ClusterSet) Owner(key string) *Server {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	addr, err := s.ownerAddr(ctx, key)
	if err != nil {
		s.t.Fatalf("owner of %q: %v", key, err)
	}
	for _, n := range s.Nodes {
		if n.Addr() == addr {
			return n
		}
	}
	s.t.Fatalf("owner of %q: %s is none of ours", key, addr)
	return nil
}

func (s *ClusterSet) ownerAddr(ctx context.Context, key string) (string, error) {
	for _, n := range s.Nodes {
		if !n.proc.Running() {
			continue
		}
		c := redis.NewClient(n.Options())
		defer c.Close()
		slot, err := c.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			return "", err
		}
		shards, err := c.ClusterShards(ctx).Result()
		if err != nil {
			return "", err
		}
		for _, shard := range shards {
			for _, r := range shard.Slots {
				if slot < r.Start || slot > r.End {
					continue
				}
				for _, node := range shard.Nodes {
					if node.Role == "master" {
						return net.JoinHostPort(node.IP, strconv.FormatInt(node.Port, 10)), nil
					}
				}
			}
		}
		return "", fmt.Errorf("slot %d has no owner", slot)
	}
	return "", errors.New("no node runs")
}
