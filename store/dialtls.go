package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// agreeTLS refuses TLS that is described twice, or for a connection without TLS.
func (o *DialOptions) agreeTLS(e *Endpoint) error {
	switch {
	case o.TLSFor == nil:
		return nil
	case !e.TLS:
		return errors.New("files for TLS are given: write rediss://")
	case o.TLS != nil, e.CAFile != "", e.CertFile != "", e.SkipVerify:
		return errors.New("TLS is described twice: remove ca_file, cert_file, key_file and skip_verify from the URL, or give no files beside it")
	}
	return nil
}

// redisKeepAlive notices a server that is gone without a word.
const redisKeepAlive = 30 * time.Second

// tlsDialer connects with the configuration of the moment; nil leaves dialling to go-redis.
// Sentinels are reached through it too.
func tlsDialer(o *DialOptions, e *Endpoint) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if o.TLSFor == nil {
		return nil
	}
	plain := &net.Dialer{Timeout: cmp.Or(e.DialTimeout, o.DialTimeout, defaultDialTimeout), KeepAlive: redisKeepAlive}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		name := e.ServerName
		if name == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, fmt.Errorf("address %q: %w", addr, err)
			}
			name = host
		}
		ctx, cancel := context.WithTimeout(ctx, plain.Timeout) // the handshake too
		defer cancel()
		d := tls.Dialer{NetDialer: plain, Config: o.TLSFor(name)}
		return d.DialContext(ctx, network, addr)
	}
}
