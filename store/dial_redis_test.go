package store_test

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/store"
)

// dial opens a Store through the URL, which runs a script in each slot that it needs.
func dial(t *testing.T, o store.DialOptions) (redis.UniversalClient, error) {
	t.Helper()
	c, err := store.Dial(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = store.Open(ctx, store.Options{Redis: c})
	return c, err
}

func TestDialReachesARealServerInEveryWay(t *testing.T) {
	t.Parallel()
	certs := rig.NewCerts(t)
	t.Run("password", func(t *testing.T) {
		s := rig.Standalone(t, rig.WithPassword("se@cret/?#"))
		_, err := dial(t, store.DialOptions{URL: s.URL()})
		require.NoError(t, err)
		_, err = dial(t, store.DialOptions{URL: "redis://" + s.Addr()})
		require.ErrorContains(t, err, "NOAUTH")
		_, err = dial(t, store.DialOptions{URL: "redis://:wrongpassword@" + s.Addr()})
		require.ErrorContains(t, err, "WRONGPASS")
		require.NotContains(t, err.Error(), "wrongpassword")
	})
	t.Run("rotated credentials", func(t *testing.T) {
		s := rig.Standalone(t, rig.WithPassword("second"))
		var asked atomic.Int64
		_, err := dial(t, store.DialOptions{URL: "redis://" + s.Addr(), Credentials: func(context.Context) (string, string, error) {
			asked.Add(1)
			return "", "second", nil
		}})
		require.NoError(t, err)
		require.Positive(t, asked.Load())
	})
	t.Run("database and client name", func(t *testing.T) {
		s := rig.Standalone(t)
		c, err := dial(t, store.DialOptions{URL: "redis://" + s.Addr() + "/3?client_name=me"})
		require.NoError(t, err)
		list, err := c.ClientList(context.Background()).Result()
		require.NoError(t, err)
		require.Contains(t, list, "name=me ")
		require.Contains(t, list, "db=3 ")
		require.EqualValues(t, 0, s.Client().Exists(context.Background(), store.LayoutKey).Val())
	})
	t.Run("RESP3", func(t *testing.T) {
		s := rig.Standalone(t)
		_, err := dial(t, store.DialOptions{URL: "redis://" + s.Addr() + "?protocol=3"})
		require.NoError(t, err)
	})
	t.Run("socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "r.sock")
		rig.Standalone(t, rig.WithConfig("unixsocket "+path))
		_, err := dial(t, store.DialOptions{URL: "unix://" + path + "?db=1"})
		require.NoError(t, err)
	})
	t.Run("TLS", func(t *testing.T) {
		s := rig.Standalone(t, rig.WithTLS(certs))
		_, err := dial(t, store.DialOptions{URL: "rediss://" + s.Addr() + "?ca_file=" + certs.CAFile})
		require.NoError(t, err)
		_, err = dial(t, store.DialOptions{URL: "rediss://" + s.Addr() + "?skip_verify=true"})
		require.NoError(t, err)
		_, err = dial(t, store.DialOptions{URL: "rediss://" + s.Addr(), TLS: certs.ClientConfig()})
		require.NoError(t, err)
		_, err = dial(t, store.DialOptions{URL: "rediss://" + s.Addr()})
		require.ErrorContains(t, err, "certificate", "the system's roots do not know this authority")
		_, err = dial(t, store.DialOptions{URL: "rediss://" + s.Addr() + "?server_name=elsewhere&ca_file=" + certs.CAFile})
		require.ErrorContains(t, err, "elsewhere")
		_, err = store.Dial(store.DialOptions{URL: "redis://" + s.Addr(), TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
		require.ErrorContains(t, err, "write rediss://")
		_, err = store.Dial(store.DialOptions{URL: "rediss://h?ca_file=" + certs.KeyFile})
		require.ErrorContains(t, err, "holds no certificate")
	})
	t.Run("client certificate", func(t *testing.T) {
		s := rig.Standalone(t, rig.WithClientCerts(certs))
		url := "rediss://" + s.Addr() + "?ca_file=" + certs.CAFile
		_, err := dial(t, store.DialOptions{URL: url + "&cert_file=" + certs.CertFile + "&key_file=" + certs.KeyFile})
		require.NoError(t, err)
		_, err = dial(t, store.DialOptions{URL: url})
		require.Error(t, err)
		_, err = store.Dial(store.DialOptions{URL: url + "&cert_file=" + certs.CertFile + "&key_file=" + certs.CAFile})
		require.ErrorContains(t, err, "cert_file and key_file")
	})
	t.Run("cluster by one seed", func(t *testing.T) {
		s := rig.Cluster(t, 3)
		c, err := dial(t, store.DialOptions{URL: "redis://" + s.Addrs()[1] + "?cluster=true"})
		require.NoError(t, err)
		require.IsType(t, (*redis.ClusterClient)(nil), c)
		_, err = dial(t, store.DialOptions{URL: "redis://" + strings.Join(s.Addrs(), ",")})
		require.NoError(t, err)
	})
	t.Run("sentinel, through a failover", func(t *testing.T) {
		s := rig.Sentinel(t)
		c, err := dial(t, store.DialOptions{URL: s.URL()})
		require.NoError(t, err)
		s.Failover()
		eventually(t, func() bool {
			return c.Set(context.Background(), "after", "failover", time.Minute).Err() == nil
		})
	})
}

func TestAnUnreachableServerIsRefusedAtOnceAndWithinTheDeadline(t *testing.T) {
	t.Parallel()
	c, err := store.Dial(store.DialOptions{URL: "redis://" + rig.FreeAddr(t)})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.ErrorContains(t, c.Ping(ctx).Err(), "refused")
	require.NoError(t, ctx.Err(), "long before the deadline")

	s := rig.Standalone(t)
	p := rig.NewProxy(t, s.Addr())
	c2, err := store.Dial(store.DialOptions{URL: "redis://" + p.Addr()})
	require.NoError(t, err)
	defer func() { _ = c2.Close() }()
	require.NoError(t, c2.Ping(context.Background()).Err())
	p.Pause()
	short, cancel2 := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel2()
	require.ErrorIs(t, c2.Ping(short).Err(), context.DeadlineExceeded, "a lookup's budget reaches the socket")
	p.Resume()
	eventually(t, func() bool { return c2.Ping(context.Background()).Err() == nil })
}

func TestARenewedClientCertificateNeedsNoRestart(t *testing.T) {
	t.Parallel()
	old, renewed := rig.NewCerts(t), rig.NewCerts(t)
	s := rig.Standalone(t, rig.WithClientCerts(renewed))
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	install := func(c *rig.Certs) {
		for from, to := range map[string]string{c.CertFile: cert, c.KeyFile: key} {
			pem, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, pem, 0o600))
		}
	}
	install(old)
	c, err := store.Dial(store.DialOptions{URL: "rediss://" + s.Addr() + "?ca_file=" + renewed.CAFile + "&cert_file=" + cert + "&key_file=" + key})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.Error(t, c.Ping(context.Background()).Err(), "the server does not know the old authority")
	install(renewed)
	require.NoError(t, c.Ping(context.Background()).Err())
}
