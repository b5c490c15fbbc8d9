package zmtp

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T, a, b Config) (*Conn, *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	type result struct {
		c   *Conn
		err error
	}
	got := make(chan result, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			got <- result{nil, err}
			return
		}
		c, err := Handshake(nc, b)
		got <- result{c, err}
	}()
	x, err := Dial(t.Context(), "tcp://"+l.Addr().String(), a)
	require.NoError(t, err)
	y := <-got
	require.NoError(t, y.err)
	t.Cleanup(func() { _, _ = x.Close(), y.c.Close() })
	return x, y.c
}

func TestMessagesOfAnySizePass(t *testing.T) {
	a, b := pair(t, Config{Socket: DEALER}, Config{Socket: ROUTER})
	require.Equal(t, ROUTER, a.Peer)
	big := bytes.Repeat([]byte("x"), 3<<20)
	go func() { _ = a.Send(nil, []byte("small"), big, bytes.Repeat([]byte("y"), 256)) }()
	got, err := b.Recv()
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Empty(t, got[0])
	require.Equal(t, "small", string(got[1]))
	require.True(t, bytes.Equal(big, got[2]))
	require.Len(t, got[3], 256)
}

func TestASubscriptionComesAsAMessage(t *testing.T) {
	a, b := pair(t, Config{Socket: SUB}, Config{Socket: PUB})
	require.NoError(t, a.Subscribe("kv"))
	got, err := b.Recv()
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("\x01kv")}, got)
	require.NoError(t, a.command("SUBSCRIBE", []byte("new"))) // as peers of version 3.1 send it
	got, err = b.Recv()
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("\x01new")}, got)
}

func TestAnIdlePeerThatLivesIsKept(t *testing.T) {
	a, b := pair(t, Config{Socket: SUB, Heartbeat: 20 * time.Millisecond}, Config{Socket: PUB, Heartbeat: -1})
	go func() { _, _ = b.Recv() }() // answers by the way
	time.AfterFunc(300*time.Millisecond, func() { _ = b.Send([]byte("late")) })
	got, err := a.Recv()
	require.NoError(t, err)
	require.Equal(t, "late", string(got[0]))
}

func TestAMessageBeyondTheLimitEndsTheConnection(t *testing.T) {
	a, b := pair(t, Config{Socket: DEALER}, Config{Socket: ROUTER, MaxMessage: 1000})
	go func() { _ = a.Send(make([]byte, 600), make([]byte, 600)) }()
	_, err := b.Recv()
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorContains(t, err, "larger than 1000")
}

func TestTheWrongSocketIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if nc, err := l.Accept(); err == nil {
			if c, err := Handshake(nc, Config{Socket: ROUTER}); err == nil {
				_ = c.Close()
			}
		}
	}()
	_, err = Dial(t.Context(), "tcp://"+l.Addr().String(), Config{Socket: SUB})
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorContains(t, err, "is this the right port?")
	<-done
}

func TestDialingEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, "tcp://"+l.Addr().String(), Config{Socket: SUB})
	require.Error(t, err)
}

// replies is a peer that said everything before it was asked.
type replies struct {
	net.Conn
	in *bytes.Reader
}

func (r replies) Read(p []byte) (int, error)       { return r.in.Read(p) }
func (r replies) Write(p []byte) (int, error)      { return len(p), nil }
func (r replies) Close() error                     { return nil }
func (r replies) SetDeadline(time.Time) error      { return nil }
func (r replies) SetReadDeadline(time.Time) error  { return nil }
func (r replies) SetWriteDeadline(time.Time) error { return nil }
func (r replies) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

func script(parts ...string) []byte { return []byte(string(greeting()) + strings.Join(parts, "")) }

var readyPUB = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"

func TestPeersThatBreakTheRulesAreRefused(t *testing.T) {
	g := greeting()
	old, curve := bytes.Clone(g), bytes.Clone(g)
	old[10] = 2
	copy(curve[12:], "CURVE")
	for want, said := range map[string][]byte{
		"no ZeroMQ socket":       bytes.Repeat([]byte("HTTP"), 20),
		"speaks version 2":       old,
		`mechanism "CURVE"`:      curve,
		"a message before READY": script("\x00\x01x"),
		"answers ERROR":          script("\x04\x0a\x05ERROR\x03bad"),
		"without a socket type":  script("\x04\x06\x05READY"),
		"without a name":         script("\x04\x01\x09"),
		"EOF":                    g[:20],
	} {
		_, err := Handshake(replies{in: bytes.NewReader(said)}, Config{Socket: SUB, Heartbeat: -1})
		require.ErrorContains(t, err, want)
	}
}

// FuzzRecv: whatever a peer says after the handshake, nothing panics and memory is bounded.
func FuzzRecv(f *testing.F) {
	f.Add([]byte("\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x00\x01\x00\x02\xc1\xc1"))
	f.Add([]byte("\x04\x07\x04PING\x00\x00"))
	f.Add([]byte("\x02\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Add([]byte("\x02\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, said []byte) {
		c, err := Handshake(replies{in: bytes.NewReader(append(script(readyPUB), said...))}, Config{Socket: SUB, Heartbeat: -1, MaxMessage: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for {
			frames, err := c.Recv()
			if err != nil {
				return
			}
			total := 0
			for _, fr := range frames {
				total += len(fr)
			}
			if total > len(said) {
				t.Fatal("more than was said")
			}
		}
	})
}

func TestParseEndpoint(t *testing.T) {
	for in, want := range map[string]string{"tcp://h:1": "tcp h:1", "tcp://*:5557": "tcp :5557", "tcp://[::1]:2": "tcp [::1]:2", "ipc:///x/y": "unix /x/y"} {
		network, address, err := ParseEndpoint(in)
		require.NoError(t, err)
		require.Equal(t, want, network+" "+address)
	}
	for _, in := range []string{"", "h:1", "tcp://h", "tcp://h:x", "tcp://h:70000", "ipc://", "inproc://x"} {
		_, _, err := ParseEndpoint(in)
		require.Error(t, err, in)
	}
}
