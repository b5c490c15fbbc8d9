package rig

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP relay in front of one address, for faults that no process
// makes by itself: a cut, a stall, a delay, a network that swallows packets.
type Proxy struct {
	t      testing.TB
	target string
	addr   string

	mu       sync.Mutex
	listener net.Listener // nil while down
	links    map[*link]struct{}
	mode     proxyMode
	delay    time.Duration
	changed  chan struct{} // closed and replaced when mode changes
	closed   bool
	wg       sync.WaitGroup
}

type proxyMode int

const (
	passing  proxyMode = iota
	holding            // bytes wait inside the proxy
	dropping           // bytes are read and thrown away
)

// NewProxy relays a fresh loopback port to target until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, links: map[*link]struct{}{}, changed: make(chan struct{})}
	for attempt := 1; ; attempt++ {
		p.addr = FreeAddr(t)
		err := p.listen()
		if err == nil {
			break
		}
		if attempt == 5 {
			t.Fatalf("proxy to %s: %v", target, err)
		}
	}
	t.Cleanup(p.close)
	return p
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Cut closes all connections; new ones pass.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// Down closes all connections and refuses new ones until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cutLocked()
}

// Up accepts connections again after Down.
func (p *Proxy) Up() {
	p.t.Helper()
	if err := poll(startLimit, p.listen); err != nil {
		p.t.Fatalf("proxy to %s coming up: %v", p.target, err)
	}
}

// Pause holds all bytes back, both ways, until Resume delivers them.
// Connections stay open and new ones are accepted.
func (p *Proxy) Pause() { p.setMode(holding) }

// Blackhole throws all bytes away, both ways. Connections stay open and new
// ones are accepted. After Resume the streams that lost bytes are broken, so
// Resume cuts them.
func (p *Proxy) Blackhole() { p.setMode(dropping) }

// Resume ends Pause and Blackhole.
func (p *Proxy) Resume() { p.setMode(passing) }

// Delay holds each piece of data back for d, each way; 0 ends it. Order and
// throughput stay as they are.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Conns is how many connections pass through now.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) setMode(m proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == dropping && m != dropping {
		p.cutLocked()
	}
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) cutLocked() {
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cutLocked()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Add(1)
	go p.accept(l)
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	defer p.wg.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed by Down or close
		}
		p.wg.Add(1)
		go p.relay(l, c)
	}
}

// relay carries one connection that came in through listener l.
func (p *Proxy) relay(l net.Listener, client net.Conn) {
	defer p.wg.Done()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	link := &link{ends: [2]net.Conn{client, server}, done: make(chan struct{})}
	p.mu.Lock()
	if p.listener != l { // Down came while we dialled
		p.mu.Unlock()
		link.close()
		return
	}
	p.links[link] = struct{}{}
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { p.carry(link, server, client) })
	both.Go(func() { p.carry(link, client, server) })
	both.Wait()
	p.mu.Lock()
	delete(p.links, link)
	p.mu.Unlock()
}

// piece is what one read brought, and when it may go on.
type piece struct {
	data []byte
	due  time.Time
}

// carry moves bytes one way until the link is cut.
func (p *Proxy) carry(l *link, dst, src net.Conn) {
	pieces := make(chan piece, 256)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 32<<10)
			n, err := src.Read(buf)
			if n > 0 {
				p.mu.Lock()
				due := time.Now().Add(p.delay)
				p.mu.Unlock()
				select {
				case pieces <- piece{buf[:n], due}:
				case <-l.done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for pc := range pieces {
		if !p.admit(l, pc.due) {
			continue
		}
		if _, err := dst.Write(pc.data); err != nil {
			break
		}
	}
	l.close() // also ends the reader and the other direction
	reader.Wait()
}

// admit waits until a piece may be written and tells whether it should be.
func (p *Proxy) admit(l *link, due time.Time) bool {
	if wait := time.Until(due); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.done:
			return false
		}
	}
	for {
		p.mu.Lock()
		mode, changed := p.mode, p.changed
		p.mu.Unlock()
		switch mode {
		case passing:
			return true
		case dropping:
			return false
		case holding: // until the mode changes
		}
		select {
		case <-changed:
		case <-l.done:
			return false
		}
	}
}

// link is one connection through the proxy.
type link struct {
	ends [2]net.Conn
	once sync.Once
	done chan struct{}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		for _, c := range l.ends {
			_ = c.Close()
		}
	})
}
