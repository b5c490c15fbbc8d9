package zmtp

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ParseEndpoint turns a ZeroMQ endpoint into what package net takes: tcp://host:port,
// where the host * stands for every address, or ipc://path.
func ParseEndpoint(endpoint string) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case !ok:
		return "", "", fmt.Errorf("endpoint %q: want tcp://host:port or ipc://path", endpoint)
	case scheme == "ipc" && rest != "":
		return "unix", rest, nil
	case scheme == "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil {
			return "", "", fmt.Errorf("endpoint %q: %w", endpoint, err)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return "", "", fmt.Errorf("endpoint %q: %q is no port number", endpoint, port)
		}
		if host == "*" {
			host = ""
		}
		return "tcp", net.JoinHostPort(host, port), nil
	}
	return "", "", fmt.Errorf("endpoint %q: want tcp://host:port or ipc://path", endpoint)
}
