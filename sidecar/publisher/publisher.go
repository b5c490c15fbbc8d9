// Package publisher publishes event batches as an engine does: numbered, over a ZeroMQ PUB
// socket, with a ROUTER socket that replays what it still has.
package publisher

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"inferencecache.io/lookuptier/sidecar/zmtp"
)

// Defaults of Options, as engines have them.
const (
	DefaultBuffer    = 10_000
	DefaultHighWater = 100_000
)

// Options of a Publisher.
type Options struct {
	// Endpoint to bind for events.
	Endpoint string
	// Replay endpoint to bind; "" = none.
	Replay string
	Topic  string
	// Buffer is how many batches a replay can reach back; 0 = DefaultBuffer.
	Buffer int
	// HighWater is how many batches wait for a slow subscriber before it loses some; 0 = DefaultHighWater.
	HighWater int
	// TopicInReplay: answer a replay with the topic in front, as newer engines do.
	TopicInReplay bool
}

// Publisher is one engine's publisher. It is safe for concurrent use.
type Publisher struct {
	opts    Options
	events  net.Listener
	replays net.Listener
	wg      sync.WaitGroup

	// publishing is held while a batch goes out, and for the whole of a replay: an engine
	// does not publish while it replays.
	publishing sync.Mutex
	next       uint64
	buffer     []batch

	mu     sync.Mutex
	conns  map[*zmtp.Conn]bool
	subs   map[*subscriber]bool
	closed bool
}

type batch struct {
	seq     uint64
	payload []byte
}

type subscriber struct {
	topics []string
	queue  chan batch
}

// Listen binds the sockets; ctx bounds that only.
func Listen(ctx context.Context, o Options) (*Publisher, error) {
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	if o.HighWater == 0 {
		o.HighWater = DefaultHighWater
	}
	p := &Publisher{opts: o, conns: map[*zmtp.Conn]bool{}, subs: map[*subscriber]bool{}}
	var err error
	if p.events, err = bind(ctx, o.Endpoint); err != nil {
		return nil, err
	}
	p.wg.Go(func() { p.accept(p.events, zmtp.PUB, p.serveSubscriber) })
	if o.Replay != "" {
		if p.replays, err = bind(ctx, o.Replay); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.wg.Go(func() { p.accept(p.replays, zmtp.ROUTER, p.serveReplay) })
	}
	return p, nil
}

func bind(ctx context.Context, endpoint string) (net.Listener, error) {
	network, address, err := zmtp.ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, network, address)
}

// Endpoints are the addresses to connect to; replay is "" if there is none.
func (p *Publisher) Endpoints() (events, replay string) {
	events = endpointOf(p.events)
	if p.replays != nil {
		replay = endpointOf(p.replays)
	}
	return events, replay
}

func endpointOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "ipc://" + l.Addr().String()
	}
	return "tcp://" + l.Addr().String()
}

func (p *Publisher) accept(l net.Listener, socket string, serve func(*zmtp.Conn)) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() {
			c, err := zmtp.Handshake(nc, zmtp.Config{Socket: socket})
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			p.mu.Lock()
			p.conns[c] = true
			closed := p.closed
			p.mu.Unlock()
			if !closed {
				serve(c)
			}
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		})
	}
}

// serveSubscriber takes subscriptions until the connection ends.
func (p *Publisher) serveSubscriber(c *zmtp.Conn) {
	s := &subscriber{queue: make(chan batch, p.opts.HighWater)}
	done := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		var seq [8]byte
		for {
			select {
			case <-done:
				return
			case b := <-s.queue:
				binary.BigEndian.PutUint64(seq[:], b.seq)
				if c.Send([]byte(p.opts.Topic), seq[:], b.payload) != nil {
					_ = c.Close()
					return
				}
			}
		}
	})
	for {
		frames, err := c.Recv()
		if err != nil {
			break
		}
		if len(frames) != 1 || len(frames[0]) == 0 {
			continue
		}
		p.mu.Lock()
		switch topic := string(frames[0][1:]); frames[0][0] {
		case 1:
			s.topics = append(s.topics, topic)
			p.subs[s] = true
		case 0:
			for i, t := range s.topics {
				if t == topic {
					s.topics = append(s.topics[:i], s.topics[i+1:]...)
					break
				}
			}
		}
		p.mu.Unlock()
	}
	close(done)
	_ = c.Close()
	sender.Wait()
	p.mu.Lock()
	delete(p.subs, s)
	p.mu.Unlock()
}

// serveReplay answers requests, in the form that the client's socket needs.
func (p *Publisher) serveReplay(c *zmtp.Conn) {
	for {
		frames, err := c.Recv()
		if err != nil || len(frames) == 0 {
			return
		}
		want := frames[len(frames)-1]
		if len(want) != 8 {
			continue
		}
		envelope := frames[:len(frames)-1]
		if p.replay(c, envelope, binary.BigEndian.Uint64(want)) != nil {
			return
		}
	}
}

func (p *Publisher) replay(c *zmtp.Conn, envelope [][]byte, from uint64) error {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	send := func(seq uint64, payload []byte) error {
		frames := append([][]byte{}, envelope...)
		if p.opts.TopicInReplay {
			frames = append(frames, []byte(p.opts.Topic))
		}
		return c.Send(append(frames, binary.BigEndian.AppendUint64(nil, seq), payload)...)
	}
	for _, b := range p.buffer {
		if b.seq < from {
			continue
		}
		if err := send(b.seq, b.payload); err != nil {
			return err
		}
	}
	return send(1<<64-1, nil)
}

// Publish sends one payload to all subscribers and returns its sequence number. A
// subscriber whose queue is full loses it.
func (p *Publisher) Publish(payload []byte) uint64 { return p.publish(payload, true) }

// Swallow numbers and buffers a payload without sending it, as if every subscriber had been
// too slow: a fault to test followers with.
func (p *Publisher) Swallow(payload []byte) uint64 { return p.publish(payload, false) }

func (p *Publisher) publish(payload []byte, send bool) uint64 {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	b := batch{seq: p.next, payload: bytes.Clone(payload)}
	p.next++
	if len(p.buffer) == p.opts.Buffer {
		p.buffer = p.buffer[1:]
	}
	p.buffer = append(p.buffer, b)
	if !send {
		return b.seq
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subs {
		for _, t := range s.topics {
			if len(p.opts.Topic) >= len(t) && p.opts.Topic[:len(t)] == t {
				select {
				case s.queue <- b:
				default:
				}
				break
			}
		}
	}
	return b.seq
}

// Subscribers counts connections with a subscription.
func (p *Publisher) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.subs)
}

// Drained tells whether everything published was handed to the network.
func (p *Publisher) Drained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subs {
		if len(s.queue) > 0 {
			return false
		}
	}
	return true
}

// Disconnect cuts every connection; the sockets stay bound.
func (p *Publisher) Disconnect() {
	p.mu.Lock()
	conns := make([]*zmtp.Conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// Close unbinds and disconnects.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.events.Close()
	if p.replays != nil {
		err = errors.Join(err, p.replays.Close())
	}
	p.Disconnect()
	p.wg.Wait()
	return err
}
