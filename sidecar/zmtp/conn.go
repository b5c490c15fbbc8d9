package zmtp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrProtocol is wrapped when the peer does not speak ZMTP 3 with the NULL mechanism,
// or breaks its rules.
var ErrProtocol = errors.New("zmtp protocol error")

// Socket types that this package plays.
const (
	SUB    = "SUB"
	PUB    = "PUB"
	DEALER = "DEALER"
	ROUTER = "ROUTER"
)

// Defaults of Config.
const (
	DefaultHeartbeat  = 2 * time.Second
	DefaultMaxMessage = 64 << 20
	handshakeTimeout  = 10 * time.Second
	maxFrames         = 64
)

// Config says how to talk.
type Config struct {
	// Socket is the type to play.
	Socket string
	// Heartbeat is how often a peer that can (ZMTP 3.1) is asked whether it is alive; after
	// three unanswered times the connection ends. 0 = DefaultHeartbeat, negative = never.
	Heartbeat time.Duration
	// MaxMessage bounds a message in bytes; 0 = DefaultMaxMessage.
	MaxMessage int
}

func (c Config) withDefaults() Config {
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = DefaultMaxMessage
	}
	return c
}

// Conn is one connection after the handshake. One goroutine may receive while others send.
type Conn struct {
	cfg   Config
	nc    net.Conn
	in    *bufio.Reader
	minor byte // of the peer
	// Peer is the peer's socket type.
	Peer string

	sending sync.Mutex
	out     *bufio.Writer

	closing sync.Once
	closed  chan struct{}
	pinging sync.WaitGroup
}

// Dial connects to an endpoint and shakes hands.
func Dial(ctx context.Context, endpoint string, cfg Config) (*Conn, error) {
	network, address, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: handshakeTimeout, KeepAlive: 5 * time.Second}
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	c, err := Handshake(nc, cfg)
	if !stop() && err == nil {
		_ = c.Close()
		err = ctx.Err()
	}
	return c, err
}

// Handshake makes a Conn of a fresh network connection, which it closes if it fails.
func Handshake(nc net.Conn, cfg Config) (*Conn, error) {
	c := &Conn{cfg: cfg.withDefaults(), nc: nc, in: bufio.NewReaderSize(nc, 256<<10), out: bufio.NewWriterSize(nc, 64<<10), closed: make(chan struct{})}
	_ = nc.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := c.handshake(); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("handshake with %s: %w", nc.RemoteAddr(), err)
	}
	_ = nc.SetDeadline(time.Time{})
	if c.beats() {
		c.pinging.Go(c.ping)
	}
	return c, nil
}

// Close ends the connection. It may be called at any time and more than once.
func (c *Conn) Close() error {
	var err error
	c.closing.Do(func() {
		close(c.closed)
		err = c.nc.Close()
		c.pinging.Wait()
	})
	return err
}

func (c *Conn) beats() bool { return c.minor >= 1 && c.cfg.Heartbeat > 0 }

func (c *Conn) ping() {
	t := time.NewTicker(c.cfg.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-t.C:
			if c.command("PING", []byte{0, 0}) != nil {
				_ = c.nc.Close() // the receiver notices
				return
			}
		}
	}
}

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// Recv waits for a message and returns its frames, which are the caller's. It answers
// the peer's own questions by the way. After an error the connection is of no more use.
func (c *Conn) Recv() ([][]byte, error) {
	var frames [][]byte
	total := 0
	for {
		flags, body, err := c.frame(c.cfg.MaxMessage - total)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			subscription, err := c.obey(body)
			if err != nil {
				return nil, err
			}
			if subscription != nil && len(frames) == 0 {
				return [][]byte{subscription}, nil
			}
			continue
		}
		if len(frames) == maxFrames {
			return nil, fmt.Errorf("%w: a message of more than %d frames", ErrProtocol, maxFrames)
		}
		frames = append(frames, body)
		total += len(body)
		if flags&flagMore == 0 {
			return frames, nil
		}
	}
}

// frame reads one frame.
func (c *Conn) frame(limit int) (flags byte, body []byte, err error) {
	if c.beats() {
		_ = c.nc.SetReadDeadline(time.Now().Add(3 * c.cfg.Heartbeat))
	}
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^byte(flagMore|flagLong|flagCommand) != 0 {
		return 0, nil, fmt.Errorf("%w: frame flags 0x%02x", ErrProtocol, flags)
	}
	var size uint64
	if flags&flagLong != 0 {
		var b [8]byte
		if _, err = io.ReadFull(c.in, b[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := c.in.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		size = uint64(b)
	}
	if size > uint64(max(limit, 0)) {
		return 0, nil, fmt.Errorf("%w: a message larger than %d bytes", ErrProtocol, c.cfg.MaxMessage)
	}
	body, err = c.body(int(size))
	return flags, body, err
}

// body reads size bytes, in steps, so that a peer gets no more memory than it fills.
func (c *Conn) body(size int) ([]byte, error) {
	const step = 1 << 20
	body := make([]byte, 0, min(size, step))
	for {
		read := len(body)
		if c.beats() && read > 0 {
			_ = c.nc.SetReadDeadline(time.Now().Add(3 * c.cfg.Heartbeat))
		}
		body = slices.Grow(body, min(size-read, step))[:min(read+step, size)]
		if _, err := io.ReadFull(c.in, body[read:]); err != nil {
			return nil, err
		}
		if len(body) == size {
			return body, nil
		}
	}
}

// obey answers a command. Unknown ones are passed over, as the protocol asks. A
// subscription comes back in the form of a message, as older peers send it.
func (c *Conn) obey(body []byte) (subscription []byte, err error) {
	name, data, err := commandOf(body)
	if err != nil {
		return nil, err
	}
	switch name {
	case "PING":
		if len(data) < 2 || len(data) > 18 {
			return nil, fmt.Errorf("%w: a PING of %d bytes", ErrProtocol, len(data))
		}
		return nil, c.command("PONG", data[2:])
	case "ERROR":
		return nil, fmt.Errorf("%w: the peer says %q", ErrProtocol, data)
	case "SUBSCRIBE":
		return append([]byte{1}, data...), nil
	case "CANCEL":
		return append([]byte{0}, data...), nil
	}
	return nil, nil
}

func commandOf(body []byte) (name string, data []byte, err error) {
	if len(body) < 1 || len(body) < 1+int(body[0]) {
		return "", nil, fmt.Errorf("%w: a command without a name", ErrProtocol)
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// Subscribe asks a PUB for the messages whose first frame begins with topic.
func (c *Conn) Subscribe(topic string) error { return c.Send(append([]byte{1}, topic...)) }

// Send writes one message.
func (c *Conn) Send(frames ...[]byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		c.write(flags, f)
	}
	return c.flush()
}

func (c *Conn) command(name string, data []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	body := append([]byte{byte(len(name))}, name...)
	c.write(flagCommand, append(body, data...))
	return c.flush()
}

// write buffers a frame; its error comes with the flush.
func (c *Conn) write(flags byte, body []byte) {
	if len(body) > 255 {
		var head [9]byte
		head[0] = flags | flagLong
		binary.BigEndian.PutUint64(head[1:], uint64(len(body)))
		_, _ = c.out.Write(head[:])
	} else {
		_, _ = c.out.Write([]byte{flags, byte(len(body))})
	}
	_, _ = c.out.Write(body)
}

// flush bounds how long a peer that reads nothing can hold a sender.
func (c *Conn) flush() error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(handshakeTimeout))
	return c.out.Flush()
}
