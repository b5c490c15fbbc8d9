// Package embedded runs a small Redis inside the process, for a first try, for
// tests, and for a single pod that needs no shared state. Nothing in it outlives
// the process. It is a package of its own so that only those who want it link it.
package embedded

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Options of the embedded server. The zero value listens on a free loopback port.
type Options struct {
	// Addr is the host:port to listen on; "127.0.0.1:0" when empty. The server
	// asks for no password, so an address that other machines may reach is refused
	// unless AllowRemote is set.
	Addr        string
	AllowRemote bool
	// Tick is how often keys expire, and so how much too early or too late one
	// may; 100 ms when 0. A busy server takes up to ten times as long.
	Tick time.Duration
}

// A tick is put off so that expiry holds the server's lock for one part in restFactor
// of the time, but never by more than maxRest ticks: what a tick seems to cost may
// have been a wait for that lock.
const (
	restFactor = 100
	maxRest    = 10
)

// Server is a running embedded Redis. It is safe for concurrent use.
type Server struct {
	redis *miniredis.Miniredis
	addr  string
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// Start runs a server until Close. An error says which address was wrong or taken.
func Start(o Options) (*Server, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Tick <= 0 {
		o.Tick = 100 * time.Millisecond
	}
	if err := checkAddr(o.Addr, o.AllowRemote); err != nil {
		return nil, err
	}
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(o.Addr); err != nil {
		return nil, fmt.Errorf("embedded store on %s: %w", o.Addr, err)
	}
	s := &Server{redis: m, addr: m.Addr(), stop: make(chan struct{}), done: make(chan struct{})}
	go s.drive(o.Tick)
	return s, nil
}

func checkAddr(addr string, allowRemote bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("embedded store address %q: write host:port, such as 127.0.0.1:0: %w", addr, err)
	}
	if allowRemote || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("embedded store address %q is not on the loopback interface, and the store asks for no password: "+
			"write 127.0.0.1:port, or use a Redis server", addr)
	}
	return nil
}

// Addr is the host:port that the server listens on.
func (s *Server) Addr() string { return s.addr }

// URL is the address as store.Dial takes it.
func (s *Server) URL() string { return "redis://" + s.addr }

// Close stops the server, cuts its connections and forgets its keys. Later calls
// do nothing.
func (s *Server) Close() error {
	s.once.Do(func() {
		close(s.stop)
		<-s.done
		s.redis.Close()
	})
	return nil
}

// drive makes keys expire. The server itself lets them age only when it is told
// to; its option to look at the clock visits every key before each command, and
// this visits them once a tick.
func (s *Server) drive(tick time.Duration) {
	defer close(s.done)
	last := time.Now()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		start := time.Now()
		s.redis.FastForward(start.Sub(last))
		last = start
		timer.Reset(min(max(tick, restFactor*time.Since(start)), maxRest*tick))
	}
}
