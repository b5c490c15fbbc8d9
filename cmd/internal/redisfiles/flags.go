// Package redisfiles has the flags that name the files of a Redis connection: its
// certificates, user and password. All commands that dial Redis share them.
package redisfiles

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"inferencecache.io/lookuptier/secrets"
	"inferencecache.io/lookuptier/store"
)

// Flags are embedded in a command line. All are empty by default.
type Flags struct {
	CA       string `name:"redis-ca-file" group:"index" placeholder:"FILE" help:"PEM of the authorities that may vouch for Redis. Empty = the system's."`
	Cert     string `name:"redis-cert-file" group:"index" placeholder:"FILE" help:"PEM of the certificate to show to Redis, with --redis-key-file."`
	Key      string `name:"redis-key-file" group:"index" placeholder:"FILE" help:"PEM of its key."`
	Username string `name:"redis-username-file" group:"index" placeholder:"FILE" help:"File with the user of Redis' ACL, read again for each new connection. Empty = the default user."`
	Password string `name:"redis-password-file" group:"index" placeholder:"FILE" help:"File with the password, read again for each new connection."`
}

// Files are what the flags name, read; nil parts were not named.
type Files struct {
	identity    *secrets.Value[*secrets.Identity]
	credentials *secrets.Value[secrets.Credentials]
}

// Names of the values, for logs and metrics.
const (
	TLS         = "redis_tls"
	Credentials = "redis_credentials"
)

// Open checks the flags beside the URL that they belong to ("" = an embedded store)
// and reads the files. An error is one of the command line.
func (f *Flags) Open(url string) (*Files, error) {
	files := &Files{}
	given := *f != Flags{}
	switch {
	case !given:
		return files, nil
	case url == "":
		return nil, errors.New("--redis-…-file flags have no effect without --redis: leave them out")
	case (f.Cert == "") != (f.Key == ""):
		return nil, errors.New("--redis-cert-file and --redis-key-file go together: write both or none")
	case f.Username != "" && f.Password == "":
		return nil, errors.New("--redis-username-file needs --redis-password-file beside it")
	}
	var err error
	if f.CA != "" || f.Cert != "" {
		if files.identity, err = secrets.LoadIdentity(TLS, f.Cert, f.Key, f.CA); err != nil {
			return nil, fmt.Errorf("--redis-ca-file, --redis-cert-file, --redis-key-file: %w", err)
		}
	}
	if f.Password != "" {
		if files.credentials, err = secrets.LoadCredentials(Credentials, f.Username, f.Password); err != nil {
			return nil, fmt.Errorf("--redis-username-file, --redis-password-file: %w", err)
		}
	}
	return files, nil
}

// Apply makes each new connection read what the files hold then.
func (f *Files) Apply(o *store.DialOptions) {
	if f.identity != nil {
		o.TLSFor = func(serverName string) *tls.Config { return f.identity.Fresh().ClientTLS(serverName) }
	}
	if f.credentials != nil {
		o.Credentials = func(context.Context) (string, string, error) {
			c := f.credentials.Fresh()
			return c.Username, c.Password, nil
		}
	}
}

// Checked are the values to follow, so that a file that went bad is told of before
// the next connection needs it.
func (f *Files) Checked() []secrets.Checked {
	var out []secrets.Checked
	if f.identity != nil {
		out = append(out, f.identity)
	}
	if f.credentials != nil {
		out = append(out, f.credentials)
	}
	return out
}
