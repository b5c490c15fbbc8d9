package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"inferencecache.io/lookuptier/auth"
	"inferencecache.io/lookuptier/cmd/internal/redisfiles"
	"inferencecache.io/lookuptier/secrets"
)

// Values of the label secret, besides those of redisfiles.
const (
	secretTLS    = "grpc_tls"
	secretTokens = "auth_tokens"
)

func (c *config) checkSecurity() error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--grpc-tls-cert-file and --grpc-tls-key-file go together: write both or none")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return errors.New("--grpc-tls-client-ca-file needs --grpc-tls-cert-file and --grpc-tls-key-file beside it")
	case c.AuthAllowInsecure && c.AuthTokens == "":
		return errors.New("--auth-allow-insecure has no effect without --auth-tokens-file: leave it out")
	case c.AuthTokens != "" && c.TLSCert == "" && !c.AuthAllowInsecure && !loopback(c.GRPCBindAddress):
		return fmt.Errorf("--auth-tokens-file without TLS on %s: whoever listens on the network would have the tokens; "+
			"give --grpc-tls-cert-file and --grpc-tls-key-file, or --auth-allow-insecure if something else encrypts the way", c.GRPCBindAddress)
	}
	return nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// security is what the pod has read from files that are secret, and keeps reading.
type security struct {
	tls    *secrets.Value[*secrets.Identity] // nil = plaintext
	guard  *auth.Guard                       // nil = no tokens are asked for
	redis  *redisfiles.Files
	follow func(ctx context.Context)
}

// openSecurity reads the files for the first time: what is wrong with one is a mistake
// of the command line.
func openSecurity(c *config, reg prometheus.Registerer, m *podMetrics, log *slog.Logger) (s security, err error) {
	counts := newSecretMetrics(reg)
	var all []secrets.Checked
	if c.TLSCert != "" {
		if s.tls, err = secrets.LoadIdentity(secretTLS, c.TLSCert, c.TLSKey, c.TLSClientCA); err != nil {
			return s, &usageError{fmt.Errorf("--grpc-tls-cert-file, --grpc-tls-key-file, --grpc-tls-client-ca-file: %w", err)}
		}
		all = append(all, s.tls)
		m.tls.Set(1)
		counts.expiry.Set(float64(s.tls.Get().NotAfter().Unix()))
	}
	if c.AuthTokens != "" {
		tokens, err := secrets.Load(secretTokens, func(files [][]byte) (*auth.Table, error) { return auth.Parse(files[0]) }, c.AuthTokens)
		if err != nil {
			return s, &usageError{fmt.Errorf("--auth-tokens-file %s: %w", c.AuthTokens, err)}
		}
		all = append(all, tokens)
		s.guard = auth.New(tokens.Get, reg, log)
		log.Info("callers must show a token", "tokens", tokens.Get().Len())
	}
	if s.redis, err = c.RedisFiles.Open(c.Redis); err != nil {
		return s, &usageError{err}
	}
	all = append(all, s.redis.Checked()...)
	for _, v := range all {
		counts.add(v.Name())
	}
	s.follow = func(ctx context.Context) {
		secrets.Follow(ctx, secrets.DefaultEvery, func(name string) {
			counts.reloads.WithLabelValues(name).Inc()
			if name == secretTLS {
				counts.expiry.Set(float64(s.tls.Get().NotAfter().Unix()))
			}
			log.Info("secret read again, and in force", "secret", name)
		}, func(name string, err error) {
			counts.failures.WithLabelValues(name).Inc()
			log.Error("secret changed and cannot be used", "secret", name, "error", err)
		}, all...)
	}
	return s, nil
}

// serverOptions are the transport's.
func (s *security) serverOptions() []grpc.ServerOption {
	if s.tls == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(secrets.ServerTLS(s.tls)))}
}

// interceptors come after those that see every call, and before the handlers.
func (s *security) interceptors() (unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) {
	if s.guard == nil {
		return nil, nil
	}
	return []grpc.UnaryServerInterceptor{s.guard.Unary}, []grpc.StreamServerInterceptor{s.guard.Stream}
}

type secretMetrics struct {
	reloads, failures *prometheus.CounterVec
	expiry            prometheus.Gauge
}

func newSecretMetrics(reg prometheus.Registerer) *secretMetrics {
	counters := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, []string{"secret"})
	}
	m := &secretMetrics{
		reloads:  counters("secret_reloads_total", "Secrets whose files changed and were put in force."),
		failures: counters("secret_reload_failures_total", "Secrets whose files changed and cannot be used; the last good ones stay in force."),
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "grpc_tls_certificate_expiry_timestamp_seconds",
			Help: "When the certificate of the gRPC port runs out, Unix seconds; 0 without TLS."}),
	}
	reg.MustRegister(m.reloads, m.failures, m.expiry)
	return m
}

// add makes the series of a secret exist.
func (m *secretMetrics) add(name string) {
	m.reloads.WithLabelValues(name)
	m.failures.WithLabelValues(name)
}
