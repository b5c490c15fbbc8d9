package secrets_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/secrets"
)

// handshake connects once to a listener with this identity; it returns the serial
// number of the certificate that it shows.
func handshake(t *testing.T, id *secrets.Value[*secrets.Identity], client *tls.Config) (string, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", secrets.ServerTLS(id))
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if conn.(*tls.Conn).Handshake() == nil {
			_, _ = conn.Write([]byte("x"))
		}
		_ = conn.Close()
	}()
	defer func() { _ = l.Close(); <-served }()
	client.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// A server that refuses the client's certificate says so only now.
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

func copyFiles(t *testing.T, from ...string) (to []string) {
	t.Helper()
	dir := t.TempDir()
	for _, path := range from {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		to = append(to, filepath.Join(dir, filepath.Base(path)))
		write(t, to[len(to)-1], string(content))
	}
	return to
}

func replace(t *testing.T, path, by string) {
	t.Helper()
	content, err := os.ReadFile(by)
	require.NoError(t, err)
	write(t, path, string(content))
}

func TestARenewedPairIsShownAndABrokenOneIsNot(t *testing.T) {
	first, second := rig.NewCerts(t), rig.NewCerts(t)
	f := copyFiles(t, first.CertFile, first.KeyFile)
	id, err := secrets.LoadIdentity("grpc_tls", f[0], f[1], "")
	require.NoError(t, err)
	before, err := handshake(t, id, first.ClientConfig())
	require.NoError(t, err)

	replace(t, f[0], second.CertFile) // its key is still the first one's
	for range 2 {
		_, err = id.Check()
	}
	require.ErrorContains(t, err, "no certificate with its key")
	again, err := handshake(t, id, first.ClientConfig())
	require.NoError(t, err)
	require.Equal(t, before, again)

	replace(t, f[1], second.KeyFile)
	changed, err := id.Check()
	require.NoError(t, err)
	require.True(t, changed)
	_, err = handshake(t, id, first.ClientConfig())
	require.Error(t, err)
	after, err := handshake(t, id, second.ClientConfig())
	require.NoError(t, err)
	require.NotEqual(t, before, after)
}

func TestOnlyClientsOfTheAuthorityAreLetIn(t *testing.T) {
	ours, stranger := rig.NewCerts(t), rig.NewCerts(t)
	f := copyFiles(t, ours.CertFile, ours.KeyFile, ours.CAFile)
	id, err := secrets.LoadIdentity("grpc_tls", f[0], f[1], f[2])
	require.NoError(t, err)
	_, err = handshake(t, id, ours.ClientConfig())
	require.NoError(t, err)

	without := ours.ClientConfig()
	without.Certificates = nil
	_, err = handshake(t, id, without)
	require.Error(t, err)
	foreign := ours.ClientConfig()
	foreign.Certificates = stranger.ClientConfig().Certificates
	_, err = handshake(t, id, foreign)
	require.Error(t, err)
	old := ours.ClientConfig()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, err = handshake(t, id, old)
	require.Error(t, err)

	replace(t, f[2], stranger.CAFile)
	changed, err := id.Check()
	require.NoError(t, err)
	require.True(t, changed)
	_, err = handshake(t, id, foreign)
	require.NoError(t, err)
}

func TestFilesThatAreNoIdentityAreRefusedByName(t *testing.T) {
	c := rig.NewCerts(t)
	_, err := secrets.LoadIdentity("x", c.CertFile, c.CAFile, "")
	require.ErrorContains(t, err, c.CAFile)
	_, err = secrets.LoadIdentity("x", "", "", c.KeyFile)
	require.ErrorContains(t, err, "holds no certificate")
	_, err = secrets.LoadIdentity("x", c.CertFile, c.KeyFile, "/nowhere/ca.pem")
	require.ErrorContains(t, err, "/nowhere/ca.pem")
}
