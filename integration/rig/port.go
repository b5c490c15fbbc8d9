package rig

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports are drawn from below the range that Linux gives to outgoing
// connections (32768 and up), so that no client socket of a parallel test sits
// on a server's port between a Kill and its Restart.
const (
	portFirst = 15000
	portLast  = 32000
)

var (
	portsMu    sync.Mutex
	portsGiven = map[int]bool{}
)

// FreePort returns a loopback TCP port that nothing listens on and that this
// process was not given before. Another process can still take it first, which
// is why everything that the rig starts tries again with another port.
func FreePort(t testing.TB) int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := portFirst + rand.IntN(portLast-portFirst)
		if portsGiven[port] {
			continue
		}
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatalf("closing a probe listener: %v", err)
		}
		portsGiven[port] = true
		return port
	}
	t.Fatalf("no free loopback port between %d and %d", portFirst, portLast)
	return 0
}

// FreeAddr is FreePort as host:port.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return loopback(FreePort(t))
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
