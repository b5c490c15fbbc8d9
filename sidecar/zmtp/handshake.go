package zmtp

import (
	"encoding/binary"
	"fmt"
	"io"
)

const greetingSize = 64

// greeting is signature, version 3.1, the mechanism, and the role of a client.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, 3, 1
	copy(g[12:32], "NULL")
	return g
}

// fits tells which socket types may talk to one another, of those that matter here.
var fits = map[string][]string{
	SUB: {"PUB", "XPUB"}, PUB: {"SUB", "XSUB"},
	DEALER: {"ROUTER", "REP", "DEALER"}, ROUTER: {"DEALER", "REQ", "ROUTER"},
}

func (c *Conn) handshake() error {
	if _, err := c.out.Write(greeting()); err != nil {
		return err
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	var g [greetingSize]byte
	if _, err := io.ReadFull(c.in, g[:12]); err != nil {
		return err
	}
	if g[0] != 0xff || g[9]&1 == 0 {
		return fmt.Errorf("%w: the peer is no ZeroMQ socket", ErrProtocol)
	}
	if g[10] < 3 {
		return fmt.Errorf("%w: the peer speaks version %d, want 3", ErrProtocol, g[10])
	}
	if _, err := io.ReadFull(c.in, g[12:]); err != nil {
		return err
	}
	if string(g[12:17]) != "NULL\x00" {
		return fmt.Errorf("%w: the peer wants security mechanism %q, only NULL is supported", ErrProtocol, trimZero(g[12:32]))
	}
	c.minor = g[11]
	if g[10] > 3 {
		c.minor = 1
	}
	if err := c.command("READY", property("Socket-Type", c.cfg.Socket)); err != nil {
		return err
	}
	flags, body, err := c.frame(64 << 10)
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 {
		return fmt.Errorf("%w: a message before READY", ErrProtocol)
	}
	name, data, err := commandOf(body)
	if err != nil {
		return err
	}
	if name != "READY" {
		return fmt.Errorf("%w: the peer answers %s %q", ErrProtocol, name, data)
	}
	if c.Peer, err = socketType(data); err != nil {
		return err
	}
	for _, ok := range fits[c.cfg.Socket] {
		if ok == c.Peer {
			return nil
		}
	}
	return fmt.Errorf("%w: a %s cannot talk to a %s: is this the right port?", ErrProtocol, c.cfg.Socket, c.Peer)
}

func property(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// socketType finds the property in the metadata of READY.
func socketType(data []byte) (string, error) {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			break
		}
		name := string(data[1:n])
		size := binary.BigEndian.Uint32(data[n:])
		data = data[n+4:]
		if uint64(size) > uint64(len(data)) {
			break
		}
		if name == "Socket-Type" {
			return string(data[:size]), nil
		}
		data = data[size:]
	}
	return "", fmt.Errorf("%w: READY without a socket type", ErrProtocol)
}

func trimZero(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}
