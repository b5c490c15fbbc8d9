package secrets

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"
)

// Identity is one end of TLS: who we are and whom we trust. It is immutable.
type Identity struct {
	// Certificate is nil if no pair of files was given.
	Certificate *tls.Certificate
	// Authorities is nil if no CA file was given.
	Authorities *x509.CertPool
}

// NotAfter is when the certificate runs out; zero without one.
func (i *Identity) NotAfter() time.Time {
	if i.Certificate == nil || i.Certificate.Leaf == nil {
		return time.Time{}
	}
	return i.Certificate.Leaf.NotAfter
}

// LoadIdentity reads a pair of certificate and key (both or none) and a file of trusted
// authorities ("" = none), all in PEM.
func LoadIdentity(name, certFile, keyFile, caFile string) (*Value[*Identity], error) {
	var paths []string
	if certFile != "" {
		paths = append(paths, certFile, keyFile)
	}
	if caFile != "" {
		paths = append(paths, caFile)
	}
	return Load(name, func(files [][]byte) (*Identity, error) {
		id := &Identity{}
		if certFile != "" {
			pair, err := tls.X509KeyPair(files[0], files[1])
			if err != nil {
				return nil, fmt.Errorf("%s and %s are no certificate with its key: %w", certFile, keyFile, err)
			}
			if pair.Leaf == nil {
				if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
					return nil, fmt.Errorf("%s: %w", certFile, err)
				}
			}
			if now := time.Now(); now.After(pair.Leaf.NotAfter) {
				return nil, fmt.Errorf("the certificate in %s ran out on %s: renew it", certFile, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
			}
			id.Certificate = &pair
		}
		if caFile != "" {
			id.Authorities = x509.NewCertPool()
			if !id.Authorities.AppendCertsFromPEM(files[len(files)-1]) {
				return nil, fmt.Errorf("%s holds no certificate: write one or more PEM blocks of type CERTIFICATE", caFile)
			}
		}
		return id, nil
	}, paths...)
}

// ServerTLS is the configuration of a listener that shows the identity as it is at each
// handshake. If the identity has authorities, callers must show a certificate of theirs.
func ServerTLS(id *Value[*Identity]) *tls.Config {
	// One configuration for each identity: made once, and a session is resumed only
	// under the authorities that it was begun under.
	type made struct {
		of   *Identity
		conf *tls.Config
	}
	var last atomic.Pointer[made]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := id.Get()
			m := last.Load()
			if m == nil || m.of != now {
				m = &made{now, now.serverTLS()}
				last.Store(m)
			}
			return m.conf, nil
		},
	}
}

func (i *Identity) serverTLS() *tls.Config {
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*i.Certificate},
		NextProtos:   []string{"h2"},
	}
	if i.Authorities != nil {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, i.Authorities
	}
	return c
}

// ClientTLS is the configuration for one new connection to a server called serverName.
// Without authorities the system's are trusted.
func (i *Identity) ClientTLS(serverName string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, RootCAs: i.Authorities}
	if i.Certificate != nil {
		c.Certificates = []tls.Certificate{*i.Certificate}
	}
	return c
}
