package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// secretFiles are the flags of a user's files, written into a directory of their own.
func secretFiles(t *testing.T, certs *rig.Certs, user, password string) (flags []string, passwordFile string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"username": user + "\n", "password": password + "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	passwordFile = filepath.Join(dir, "password")
	return []string{"--redis-ca-file", certs.CAFile, "--redis-cert-file", certs.CertFile, "--redis-key-file", certs.KeyFile,
		"--redis-username-file", filepath.Join(dir, "username"), "--redis-password-file", passwordFile}, passwordFile
}

func TestARotatedPasswordReachesPodsAndSidecarsWithoutARestart(t *testing.T) {
	t.Parallel()
	certs := rig.NewCerts(t)
	s := rig.Standalone(t, rig.WithClientCerts(certs), aclUsers(1))
	url := "rediss://" + s.Addr()
	podFlags, podPassword := secretFiles(t, certs, "lookupd", "lookupd-password")
	sidecarFlags, sidecarPassword := secretFiles(t, certs, "kvsidecar", "kvsidecar-password")
	p := pod.Start(t, append([]string{"--redis", url}, podFlags...)...)
	e := newSimEngine(t, 0)
	side := startSidecar(t, url, e, model, "r", sidecarFlags...)
	e.publish(e.stored(ids(1, 20), 0))
	everyPod(t, []*pod.Pod{p}, "a stored prompt", ids(1, 20), "r", 20)

	admin := s.Client()
	for user, file := range map[string]string{"lookupd": podPassword, "kvsidecar": sidecarPassword} {
		require.NoError(t, os.WriteFile(file, []byte("rotated"), 0o600))
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", user, "resetpass", ">rotated").Err())
		require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", user).Err())
	}
	e.publish(e.stored(ids(2, 20), 0))
	everyPod(t, []*pod.Pod{p}, "a prompt stored afterwards", ids(2, 20), "r", 20)
	require.True(t, side.proc.Stop(settleLimit))
	for _, out := range []string{p.Process().Output(), side.proc.Output()} {
		require.NotContains(t, out, "rotated")
		require.NotContains(t, out, "-password\"")
	}

	operatorFlags, _ := secretFiles(t, certs, "operator", "operator-password")
	args := append([]string{"doctor", "--redis", url, "--output", "json"}, operatorFlags...)
	out, err := exec.Command(pod.Binary(t, "lookupctl"), args...).CombinedOutput()
	require.NotContains(t, string(out), "NOPERM", "%v", err)
	require.NotContains(t, string(out), "WRONGPASS")
	require.NotContains(t, string(out), "NOAUTH")
	require.NotEmpty(t, out)
	if exit := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 1, exit.ExitCode(), "%s", out)
	}
	require.Empty(t, denials(t, []*rig.Server{s}))
}
