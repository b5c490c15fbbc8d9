package rig

import (
	"fmt"
	"os"
	"path/filepath"
)

// Option changes how a server is started.
type Option func(*settings)

type settings struct {
	username, password string
	acl                []string
	tls                *Certs
	clientCerts        bool
	config             []string
	persists           bool
}

// WithPassword protects the default user (requirepass).
func WithPassword(password string) Option {
	return func(s *settings) { s.username, s.password = "", password }
}

// WithACL gives the server an ACL file of these lines, as `user NAME on >PASSWORD ~ic1:* +@all`.
// The rig's own client needs a user that may do everything: it is added as
// "rig", and the default user is turned off.
func WithACL(users ...string) Option {
	return func(s *settings) {
		s.username, s.password = rigUser, rigPassword
		s.acl = append([]string{
			"user default off",
			fmt.Sprintf("user %s on >%s ~* &* +@all", rigUser, rigPassword),
		}, users...)
	}
}

const (
	rigUser     = "rig"
	rigPassword = "rig-password"
)

// WithTLS makes the server speak TLS only, with a certificate of c.
func WithTLS(c *Certs) Option {
	return func(s *settings) { s.tls = c }
}

// WithClientCerts makes a TLS server refuse clients that show no certificate of c.
func WithClientCerts(c *Certs) Option {
	return func(s *settings) { s.tls, s.clientCerts = c, true }
}

// WithConfig adds lines to the server's configuration file, such as `maxmemory 4mb`.
func WithConfig(lines ...string) Option {
	return func(s *settings) { s.config = append(s.config, lines...) }
}

// WithRDB lets SAVE and a clean stop write a snapshot that Restart loads.
func WithRDB() Option {
	return func(s *settings) {
		s.persists = true
		s.config = append(s.config, `save 3600 1`)
	}
}

// WithAOF keeps an append-only file that Restart replays; every write is synced.
func WithAOF() Option {
	return func(s *settings) {
		s.persists = true
		s.config = append(s.config, "appendonly yes", "appendfsync always")
	}
}

// lines renders the configuration file of a server in dir on port.
func (s *settings) lines(dir string, port int) ([]string, error) {
	out := []string{
		"bind 127.0.0.1",
		"dir " + dir,
		"daemonize no",
		"databases 4",
		"tcp-backlog 128",
		"maxclients 500",
		"repl-diskless-sync-delay 0",
		"repl-backlog-size 1mb",
	}
	if !s.persists {
		out = append(out, `save ""`, "appendonly no")
	}
	if s.tls != nil {
		out = append(out, "port 0", fmt.Sprintf("tls-port %d", port),
			"tls-cert-file "+s.tls.CertFile, "tls-key-file "+s.tls.KeyFile, "tls-ca-cert-file "+s.tls.CAFile)
		if !s.clientCerts {
			out = append(out, "tls-auth-clients no")
		}
	} else {
		out = append(out, fmt.Sprintf("port %d", port))
	}
	switch {
	case len(s.acl) > 0:
		path := filepath.Join(dir, "users.acl")
		var text []byte
		for _, l := range s.acl {
			text = append(append(text, l...), '\n')
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, fmt.Errorf("ACL file: %w", err)
		}
		out = append(out, "aclfile "+path)
	case s.password != "":
		out = append(out, "requirepass "+s.password, "masterauth "+s.password)
	}
	return append(out, s.config...), nil
}
