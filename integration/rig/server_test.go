package rig_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
)

func TestStandaloneKeepsNothingOverARestart(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t)
	c := s.Client()
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	addr, pid := s.Addr(), s.PID()
	s.Restart()
	require.Equal(t, addr, s.Addr())
	require.NotEqual(t, pid, s.PID())
	require.ErrorIs(t, s.Client().Get(t.Context(), "k").Err(), redis.Nil)
}

func TestStandaloneWithAOFKeepsEverythingOverACrash(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t, rig.WithAOF())
	require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
	s.Restart()
	require.Equal(t, "v", s.Client().Get(t.Context(), "k").Val())
}

func TestStandaloneWithRDBKeepsTheSnapshotOverACrash(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t, rig.WithRDB())
	c := s.Client()
	require.NoError(t, c.Set(t.Context(), "kept", "v", 0).Err())
	require.NoError(t, c.Save(t.Context()).Err())
	require.NoError(t, c.Set(t.Context(), "lost", "v", 0).Err())
	s.Kill()
	s.Restart()
	require.Equal(t, "v", s.Client().Get(t.Context(), "kept").Val())
	require.ErrorIs(t, s.Client().Get(t.Context(), "lost").Err(), redis.Nil)
}

func TestPauseStallsAndResumeAnswers(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t)
	c := s.Client()
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, c.Ping(ctx).Err())
	s.Resume()
	rig.Eventually(t, 20*time.Second, "an answer", func() error { return c.Ping(t.Context()).Err() })
}

func TestPasswordACLAndTLSAreEnforced(t *testing.T) {
	t.Parallel()
	certs, stranger := rig.NewCerts(t), rig.NewCerts(t)
	for name, opts := range map[string][]rig.Option{
		"password":     {rig.WithPassword("p@ss/w:rd")},
		"acl":          {rig.WithACL("user reader on >secret ~ic1:* +@read +ping")},
		"tls":          {rig.WithTLS(certs)},
		"client certs": {rig.WithClientCerts(certs), rig.WithPassword("pw")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rig.Standalone(t, opts...)
			require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())

			plain := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
			defer plain.Close()
			require.Error(t, plain.Get(t.Context(), "k").Err(), "a client without credentials")

			if name == "acl" {
				o, err := redis.ParseURL(s.URLAs("reader", "secret"))
				require.NoError(t, err)
				reader := redis.NewClient(o)
				defer reader.Close()
				require.ErrorContains(t, reader.Get(t.Context(), "k").Err(), "NOPERM")
				require.ErrorIs(t, reader.Get(t.Context(), "ic1:k").Err(), redis.Nil)
			}
			if name == "tls" {
				o := s.Options()
				o.TLSConfig = stranger.ClientConfig()
				c := redis.NewClient(o)
				defer c.Close()
				require.ErrorContains(t, c.Ping(t.Context()).Err(), "certificate")
			}
			if name == "client certs" {
				o := s.Options()
				o.TLSConfig = certs.ClientConfig()
				o.TLSConfig.Certificates = nil
				c := redis.NewClient(o)
				defer c.Close()
				require.Error(t, c.Ping(t.Context()).Err())
			}
			if name != "tls" && name != "client certs" {
				o, err := redis.ParseURL(s.URL())
				require.NoError(t, err)
				c := redis.NewClient(o)
				defer c.Close()
				require.NoError(t, c.Ping(t.Context()).Err())
			}
		})
	}
}

// TestServersDieWithAKilledTestBinary runs this binary again as a child that
// starts a server and waits, and kills that child in a way it cannot handle.
func TestServersDieWithAKilledTestBinary(t *testing.T) {
	if path := os.Getenv("RIG_CHILD"); path != "" {
		s := rig.Standalone(t)
		require.NoError(t, os.WriteFile(path+".tmp", []byte(strconv.Itoa(s.PID())), 0o600))
		require.NoError(t, os.Rename(path+".tmp", path))
		select {}
	}
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Log("nothing to prove: only Linux has a parent-death signal")
		return
	}
	rig.Require(t)
	path := t.TempDir() + "/pid"
	child := exec.Command(os.Args[0], "-test.run=^TestServersDieWithAKilledTestBinary$", "-test.timeout=60s")
	child.Env = append(os.Environ(), "RIG_CHILD="+path, "TMPDIR="+t.TempDir())
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	var pid int
	rig.Eventually(t, 30*time.Second, "the child's server", func() error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(string(b))
		return err
	})
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // killed: an error is what we want
	rig.Eventually(t, 20*time.Second, "the server's death", func() error {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err == nil && !strings.Contains(string(b), ") Z ") {
			return os.ErrExist
		}
		return nil // gone, or dead and not waited for
	})
}
