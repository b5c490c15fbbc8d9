package main

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/rig"
)

// mounted lays files out as a mounted Secret is: links into a directory that is itself
// a link, swung round by swap.
type mounted struct {
	t       *testing.T
	dir     string
	version int
}

func mount(t *testing.T, files map[string]string) *mounted {
	t.Helper()
	m := &mounted{t: t, dir: t.TempDir()}
	m.swap(files)
	for name := range files {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), m.path(name)))
	}
	return m
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mounted) swap(files map[string]string) {
	m.t.Helper()
	m.version++
	next, err := os.MkdirTemp(m.dir, "..v")
	require.NoError(m.t, err)
	for name, content := range files {
		require.NoError(m.t, os.WriteFile(filepath.Join(next, name), []byte(content), 0o600))
	}
	require.NoError(m.t, os.Symlink(filepath.Base(next), m.path("..next")))
	require.NoError(m.t, os.Rename(m.path("..next"), m.path("..data")))
}

func content(t *testing.T, path string) string {
	t.Helper()
	c, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(c)
}

func pairOf(t *testing.T, c *rig.Certs) map[string]string {
	return map[string]string{"tls.crt": content(t, c.CertFile), "tls.key": content(t, c.KeyFile), "ca.crt": content(t, c.CAFile)}
}

// dial asks p once with these credentials; a new connection each time.
func (p *process) dial(creds credentials.TransportCredentials) error {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+p.grpc, grpc.WithTransportCredentials(creds))
	require.NoError(p.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	_, err = pb.NewInferenceCacheClient(conn).LookupRoute(ctx, lookup("t", "a"))
	return err
}

func TestTheGRPCPortShowsARenewedCertificateWithoutARestart(t *testing.T) {
	first, second := rig.NewCerts(t), rig.NewCerts(t)
	m := mount(t, pairOf(t, first))
	p := launch(t, "--grpc-tls-cert-file", m.path("tls.crt"), "--grpc-tls-key-file", m.path("tls.key"), "--grpc-tls-client-ca-file", m.path("ca.crt"))
	trusting := func(c *rig.Certs) credentials.TransportCredentials { return credentials.NewTLS(c.ClientConfig()) }
	require.NoError(t, p.dial(trusting(first)))
	require.Equal(t, "1", p.metric("inferencecache_server_grpc_tls_enabled"))
	require.NotEqual(t, "0", p.metric("inferencecache_grpc_tls_certificate_expiry_timestamp_seconds"))
	require.Equal(t, codes.Unavailable, status.Code(p.dial(insecure.NewCredentials())))
	noCert := &tls.Config{RootCAs: first.ClientConfig().RootCAs, MinVersion: tls.VersionTLS12}
	require.Equal(t, codes.Unavailable, status.Code(p.dial(credentials.NewTLS(noCert))))

	broken := pairOf(t, second)
	broken["tls.key"] = content(t, first.KeyFile)
	m.swap(broken)
	p.waitLog("secret changed and cannot be used")
	require.Equal(t, "1", p.metric(`inferencecache_secret_reload_failures_total{secret="grpc_tls"}`))
	require.NoError(t, p.dial(trusting(first)))

	m.swap(pairOf(t, second))
	p.waitLog("secret read again")
	require.Equal(t, "1", p.metric(`inferencecache_secret_reloads_total{secret="grpc_tls"}`))
	require.NoError(t, p.dial(trusting(second)))
	require.Equal(t, codes.Unavailable, status.Code(p.dial(trusting(first))))
}

const tokenOfA, tokenOfB = "0123456789abcdef-of-a", "0123456789abcdef-of-b"

func TestTokensAreBoundToTenantsAndReadAgain(t *testing.T) {
	file := func(token string) map[string]string {
		return map[string]string{"tokens": "tokens: [{name: g, token: " + token + ", lookup: [t], report: [t]}]"}
	}
	m := mount(t, file(tokenOfA))
	p := launch(t, "--auth-tokens-file", m.path("tokens"))
	p.waitReady() // asks HTTP, which needs none
	_, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	ask := func(token, tenant string) codes.Code {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), generous)
		defer cancel()
		_, err := p.client.LookupRoute(ctx, lookup(tenant, "a"))
		return status.Code(err)
	}
	require.Equal(t, codes.OK, ask(tokenOfA, "t"))
	require.Equal(t, codes.PermissionDenied, ask(tokenOfA, "another"))
	require.Equal(t, codes.Unauthenticated, ask(tokenOfB, "t"))
	require.Equal(t, codes.Unauthenticated, status.Code(p.report("t", "r1", "a")))
	require.Equal(t, "1", p.metric(`inferencecache_auth_rejected_total{reason="wrong_tenant"}`))
	// The three are counted in that one call alone, never as a lookup.
	require.Equal(t, "1", p.metric(`inferencecache_lookup_route_calls_total{hint_used="false",model="m",reason_code="NO_HINT"}`))

	m.swap(map[string]string{"tokens": "tokens: [{name: g}]"})
	p.waitLog("secret changed and cannot be used")
	require.Equal(t, codes.OK, ask(tokenOfA, "t"))
	m.swap(file(tokenOfB))
	require.Eventually(t, func() bool { return ask(tokenOfB, "t") == codes.OK }, generous, 20*time.Millisecond)
	require.Equal(t, codes.Unauthenticated, ask(tokenOfA, "t"))
	require.NotContains(t, p.log(), tokenOfA)
	require.NotContains(t, p.log(), tokenOfB)
}

func TestANewPasswordOfRedisIsUsedForNewConnections(t *testing.T) {
	certs := rig.NewCerts(t)
	s := rig.Standalone(t, rig.WithTLS(certs), rig.WithACL("user lookupd on >first ~ic1:* resetchannels +@all -@admin"))
	m := mount(t, map[string]string{"username": "lookupd\n", "password": "first\n", "ca.crt": content(t, certs.CAFile)})
	p := launch(t, "--redis", "rediss://"+s.Addr(), "--redis-ca-file", m.path("ca.crt"),
		"--redis-username-file", m.path("username"), "--redis-password-file", m.path("password"))
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a"))

	admin := s.Client()
	m.swap(map[string]string{"username": "lookupd", "password": "second", "ca.crt": content(t, certs.CAFile)})
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "lookupd", "<first", ">second").Err())
	require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "lookupd").Err())
	require.Eventually(t, func() bool { return p.report("t", "r1", "b") == nil }, generous, 20*time.Millisecond)
	p.waitReady()
	require.NotContains(t, p.log(), "second")
}

func TestFlagsOfSecurityThatMakeNoSenseAreRefused(t *testing.T) {
	c := rig.NewCerts(t)
	tokens := mount(t, map[string]string{"good": "tokens: [{name: g, token: " + tokenOfA + ", lookup: [t]}]", "bad": "tokens: [{name: g, token: hunter2}]"})
	for says, args := range map[string][]string{
		"write both or none":                           {"--grpc-tls-cert-file", c.CertFile},
		"needs --grpc-tls-cert-file":                   {"--grpc-tls-client-ca-file", c.CAFile},
		"no certificate with its key":                  {"--grpc-tls-cert-file", c.CertFile, "--grpc-tls-key-file", c.CAFile},
		"without TLS on :9090":                         {"--auth-tokens-file", tokens.path("good")},
		"has no effect without --auth-tokens-file":     {"--auth-allow-insecure"},
		"too short":                                    {"--grpc-bind-address", "127.0.0.1:0", "--auth-tokens-file", tokens.path("bad")},
		"have no effect without --redis":               {"--redis-ca-file", c.CAFile},
		"--redis-cert-file and --redis-key-file go":    {"--redis", "rediss://h", "--redis-cert-file", c.CertFile},
		"write rediss://":                              {"--redis", "redis://h", "--redis-ca-file", c.CAFile},
		"TLS is described twice":                       {"--redis", "rediss://h?ca_file=x", "--redis-ca-file", c.CAFile},
		"needs --redis-password-file":                  {"--redis", "redis://h", "--redis-username-file", c.CAFile},
		"credentials are given twice":                  {"--redis", "redis://u:p@h", "--redis-password-file", tokens.path("bad")},
		"--read-from replica needs a Redis with some":  {"--redis", "redis://h", "--read-from", "replica"},
		"--read-from replica needs a Redis with some:": {"--read-from", "replica"},
	} {
		p := spawn(t, args...)
		require.Equal(t, exitUsage, p.waitExit(), "%v: %s", args, p.log())
		require.Contains(t, p.log(), says)
		require.NotContains(t, p.log(), "hunter2")
	}
}
