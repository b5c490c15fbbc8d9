package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the rig's sentinels call their master.
const MasterName = "lookuptier"

const (
	gatherLimit   = 60 * time.Second // for servers to find one another
	failoverLimit = 60 * time.Second
)

// SentinelSet is a master with two replicas, watched by three sentinels that
// fail over within a few seconds.
type SentinelSet struct {
	t         testing.TB
	Servers   []*Server // the first is the master at the start
	Sentinels []*Server
}

// Sentinel starts a SentinelSet and waits until its sentinels know everyone.
// The options are those of the data servers.
func Sentinel(t testing.TB, opts ...Option) *SentinelSet {
	t.Helper()
	set := &SentinelSet{t: t}
	master := startServer(t, "redis-master", opts...)
	set.Servers = append(set.Servers, master)
	for i := 1; i <= 2; i++ {
		replicaOf := WithConfig(fmt.Sprintf("replicaof 127.0.0.1 %d", master.Port()))
		set.Servers = append(set.Servers, startServer(t, fmt.Sprintf("redis-replica-%d", i), append(opts[:len(opts):len(opts)], replicaOf)...))
	}
	for i := 1; i <= 3; i++ {
		set.Sentinels = append(set.Sentinels, startSentinel(t, fmt.Sprintf("sentinel-%d", i), master))
	}
	Eventually(t, gatherLimit, "sentinels knowing one another", set.gathered)
	return set
}

func startSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, master.Port()),
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000", MasterName),
		fmt.Sprintf("sentinel failover-timeout %s 5000", MasterName),
		fmt.Sprintf("sentinel parallel-syncs %s 2", MasterName),
	}
	if pw := master.settings.password; pw != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", MasterName, pw))
		if user := master.settings.username; user != "" {
			lines = append(lines, fmt.Sprintf("sentinel auth-user %s %s", MasterName, user))
		}
	}
	s := newServer(t, name)
	s.sentinel = true
	for attempt := 1; ; attempt++ {
		s.port = FreePort(t)
		s.settings.config = lines
		err := s.configureAndStart()
		if err == nil {
			return s
		}
		if attempt == 5 {
			t.Fatalf("%s did not start: %v\n%s", name, err, tail(s.logPath(), 4<<10))
		}
	}
}

// Addrs are the sentinels' addresses.
func (s *SentinelSet) Addrs() []string {
	var out []string
	for _, n := range s.Sentinels {
		out = append(out, n.Addr())
	}
	return out
}

// URL is how a program is told of the set: the sentinels' addresses, comma
// separated, with the master's name in the query and the data servers' password
// before the first host.
func (s *SentinelSet) URL() string {
	u := s.Servers[0].URL()
	u = strings.Replace(u, s.Servers[0].Addr(), strings.Join(s.Addrs(), ","), 1)
	return u + "?master_name=" + MasterName
}

// Master is the server that the sentinels agree to be the master, as the first
// sentinel that runs says.
func (s *SentinelSet) Master() *Server {
	s.t.Helper()
	var m *Server
	Eventually(s.t, gatherLimit, "a sentinel naming the master", func() error {
		addr, err := s.masterAddr()
		if err != nil {
			return err
		}
		for _, n := range s.Servers {
			if n.Addr() == addr {
				m = n
				return nil
			}
		}
		return fmt.Errorf("master %s is none of ours", addr)
	})
	return m
}

// Client follows the master through the sentinels; closed when the test ends.
func (s *SentinelSet) Client() *redis.Client {
	o := s.Servers[0].Options()
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: MasterName, SentinelAddrs: s.Addrs(),
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, DisableIdentity: true, ContextTimeoutEnabled: true,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Failover kills the master and waits until another server has taken its
// place. It returns the one killed, which Restart makes a replica of the new one.
func (s *SentinelSet) Failover() (old *Server) {
	s.t.Helper()
	old = s.Master()
	old.Kill()
	Eventually(s.t, failoverLimit, "a failover", func() error {
		addr, err := s.masterAddr()
		if err != nil {
			return err
		}
		if addr == old.Addr() {
			return errors.New("the sentinels still name the server that was killed")
		}
		for _, n := range s.Servers {
			if n.Addr() == addr {
				return n.isMaster()
			}
		}
		return fmt.Errorf("master %s is none of ours", addr)
	})
	return old
}

func (s *SentinelSet) masterAddr() (string, error) {
	err := errors.New("no sentinel runs")
	for _, n := range s.Sentinels {
		if !n.proc.Running() {
			continue
		}
		var hostPort []string
		if hostPort, err = askSentinel(n, func(ctx context.Context, c *redis.SentinelClient) ([]string, error) {
			return c.GetMasterAddrByName(ctx, MasterName).Result()
		}); err == nil {
			return net.JoinHostPort(hostPort[0], hostPort[1]), nil
		}
	}
	return "", err
}

func (s *SentinelSet) gathered() error {
	for _, n := range s.Sentinels {
		m, err := askSentinel(n, func(ctx context.Context, c *redis.SentinelClient) (map[string]string, error) {
			return c.Master(ctx, MasterName).Result()
		})
		if err != nil {
			return err
		}
		if m["flags"] != "master" || m["num-slaves"] != "2" || m["num-other-sentinels"] != "2" {
			return fmt.Errorf("%s: flags %s, %s replicas, %s other sentinels", n.name, m["flags"], m["num-slaves"], m["num-other-sentinels"])
		}
	}
	for _, r := range s.Servers[1:] {
		if err := r.follows(); err != nil {
			return err
		}
	}
	return nil
}

func askSentinel[T any](n *Server, ask func(context.Context, *redis.SentinelClient) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c := redis.NewSentinelClient(n.Options())
	defer c.Close()
	return ask(ctx, c)
}

// isMaster is nil if the server itself says that it is one.
func (s *Server) isMaster() error { return s.inReplication("role:master") }

// follows is nil if the server is a replica in step with its master.
func (s *Server) follows() error { return s.inReplication("master_link_status:up") }

func (s *Server) inReplication(want string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c := redis.NewClient(s.Options())
	defer c.Close()
	info, err := c.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, want+"\r\n") {
		return fmt.Errorf("%s: not %s", s.name, want)
	}
	return nil
}
