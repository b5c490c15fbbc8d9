package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// DialOptions says how to reach Redis. Only URL is needed.
type DialOptions struct {
	// URL is read by ParseURL.
	URL string
	// ClientName is shown by CLIENT LIST; "lookuptier" when empty.
	ClientName string
	// TLS replaces the configuration that the URL describes; needs rediss. Nil
	// takes the URL's: the system's roots unless ca_file is given.
	TLS *tls.Config
	// TLSFor is asked before each new connection for its configuration, given the
	// name that the server's certificate must have, so that renewed authorities and
	// certificates are picked up; needs rediss, and then takes the place of TLS and
	// of the URL's ca_file, cert_file, key_file and skip_verify.
	TLSFor func(serverName string) *tls.Config
	// Credentials is asked for user and password before each new connection,
	// so that a rotated secret is picked up; the URL then carries none. The ctx
	// is the dialling caller's.
	Credentials func(ctx context.Context) (username, password string, err error)
	// PoolSize bounds the connections of ordinary commands to one server; 0 = 32.
	// A lookup holds one for the time of one script, so this is the number of
	// cold walks in flight.
	PoolSize int
	// MinIdleConns stay open to each server, so that a burst after silence does
	// not pay for handshakes; 0 = 2, negative = none.
	MinIdleConns int
	// DialTimeout bounds one attempt to connect; 0 = 1 s.
	DialTimeout time.Duration
	// ReadTimeout and WriteTimeout bound one reply or request of callers whose
	// context has no earlier deadline; 0 = 3 s.
	ReadTimeout, WriteTimeout time.Duration
	// MaxRetries is how often a command is sent again after a network error;
	// nil = once, which covers a connection that the server closed while idle.
	// All our scripts may run twice: the second run finds what the first left.
	MaxRetries *int
}

const (
	defaultPoolSize     = 32
	defaultMinIdleConns = 2
	defaultDialTimeout  = time.Second
	defaultIOTimeout    = 3 * time.Second

	// clusterMapAge is how old the client's map of a Cluster's slots may get. A
	// node that died answers no MOVED, so only a look at the map finds its
	// successor; with go-redis' own minute its slots would stay lost that long.
	clusterMapAge = 2 * time.Second
)

// Dial makes the client of the topology that the URL names. It connects to
// nothing yet: a Redis that is away is found by the first command, and by
// readiness. The caller closes the client.
func Dial(o DialOptions) (redis.UniversalClient, error) {
	e, u, err := o.universal()
	if err != nil {
		return nil, err
	}
	if e.Cluster {
		c := u.Cluster()
		c.ClusterStateReloadInterval = clusterMapAge
		return redis.NewClusterClient(c), nil
	}
	return redis.NewUniversalClient(u), nil
}

// universal reads the URL and checks that the options agree with it.
func (o *DialOptions) universal() (*Endpoint, *redis.UniversalOptions, error) {
	e, err := ParseURL(o.URL)
	if err != nil {
		return nil, nil, err
	}
	if o.Credentials != nil && (e.Username != "" || e.Password != "") {
		return nil, nil, fmt.Errorf("redis URL %s: credentials are given twice: remove them from the URL, or give no credentials file", Redacted(o.URL))
	}
	if err := o.agreeTLS(e); err != nil {
		return nil, nil, fmt.Errorf("redis URL %s: %w", Redacted(o.URL), err)
	}
	conf := o.TLS
	switch {
	case o.TLSFor != nil:
	case conf != nil && !e.TLS:
		return nil, nil, fmt.Errorf("redis URL %s: a TLS configuration is given: write rediss://", Redacted(o.URL))
	case conf == nil && e.TLS:
		if conf, err = e.tlsConfig(); err != nil {
			return nil, nil, fmt.Errorf("redis URL %s: %w", Redacted(o.URL), err)
		}
	}
	return e, universal(o, e, conf), nil
}

func universal(o *DialOptions, e *Endpoint, conf *tls.Config) *redis.UniversalOptions {
	retries := 1
	if n := cmp.Or(e.MaxRetries, o.MaxRetries); n != nil {
		retries = *n
	}
	if retries == 0 {
		retries = -1 // go-redis' word for none
	}
	idle := cmp.Or(e.MinIdleConns, o.MinIdleConns, defaultMinIdleConns)
	if idle < 0 {
		idle = 0
	}
	return &redis.UniversalOptions{
		Dialer:     tlsDialer(o, e),
		Addrs:      e.Addrs,
		DB:         e.DB,
		Username:   e.Username,
		Password:   e.Password,
		ClientName: cmp.Or(e.ClientName, o.ClientName, "lookuptier"),
		TLSConfig:  conf,

		CredentialsProviderContext: o.Credentials,

		IsClusterMode:    e.Cluster,
		MasterName:       e.MasterName,
		SentinelUsername: e.SentinelUsername,
		SentinelPassword: e.SentinelPassword,

		// RESP2 has no push frames, so that no reader has to look for one before
		// each reply; nothing here needs RESP3.
		Protocol: cmp.Or(e.Protocol, 2),
		// CLIENT SETINFO costs a round trip per connection and a logged error on
		// servers that lack it; CLIENT LIST already shows the name.
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},

		// The budget of a lookup is a deadline, and must reach the socket.
		ContextTimeoutEnabled: true,
		DialTimeout:           cmp.Or(e.DialTimeout, o.DialTimeout, defaultDialTimeout),
		ReadTimeout:           cmp.Or(e.ReadTimeout, o.ReadTimeout, defaultIOTimeout),
		WriteTimeout:          cmp.Or(e.WriteTimeout, o.WriteTimeout, defaultIOTimeout),
		// A refused connection is refused at once: the callers above retry, or
		// answer without Redis.
		DialerRetries:   1,
		MaxRetries:      retries,
		MinRetryBackoff: 5 * time.Millisecond,
		MaxRetryBackoff: 50 * time.Millisecond,

		PoolSize:     cmp.Or(e.PoolSize, o.PoolSize, defaultPoolSize),
		MinIdleConns: idle,
		PoolTimeout:  cmp.Or(e.ReadTimeout, o.ReadTimeout, defaultIOTimeout),
	}
}

// tlsConfig is what the URL's parameters say. The client's certificate is read
// again at each handshake, so that a renewed one needs no restart.
func (e *Endpoint) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         e.ServerName,
		InsecureSkipVerify: e.SkipVerify, //nolint:gosec // only on the operator's explicit word
	}
	if e.CAFile != "" {
		pem, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s holds no certificate: write one or more PEM blocks of type CERTIFICATE", e.CAFile)
		}
	}
	if e.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(e.CertFile, e.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("cert_file and key_file: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return conf, nil
}
