package secrets_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/secrets"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func token(t *testing.T, content string) (string, *secrets.Value[string]) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, content)
	v, err := secrets.LoadToken("token", path)
	require.NoError(t, err)
	return path, v
}

func TestAChangedFileIsPutInForceOnce(t *testing.T) {
	path, v := token(t, "one\n")
	changed, err := v.Check()
	require.NoError(t, err)
	require.False(t, changed)

	write(t, path, "two")
	changed, err = v.Check()
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "two", v.Get())
	changed, err = v.Check()
	require.NoError(t, err)
	require.False(t, changed)
}

func TestABadFileIsToldOnceAndNeverPutInForce(t *testing.T) {
	path, v := token(t, "good")
	for _, breakIt := range []func(){func() { write(t, path, "") }, func() { require.NoError(t, os.Remove(path)) }} {
		breakIt()
		_, err := v.Check()
		require.NoError(t, err, "it may be half written")
		_, err = v.Check()
		require.ErrorContains(t, err, "stays in force")
		for range 3 {
			_, err = v.Check()
			require.NoError(t, err, "it was told already")
		}
		require.Equal(t, "good", v.Get())
		require.Equal(t, "good", v.Fresh())
	}
	write(t, path, "better")
	changed, err := v.Check()
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "better", v.Get())
}

func TestALinkThatIsSwungRoundIsAChange(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "password"), version)
	}
	// As a mounted Secret is laid out.
	require.NoError(t, os.Symlink("v1", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/password", filepath.Join(dir, "password")))
	v, err := secrets.LoadCredentials("c", "", filepath.Join(dir, "password"))
	require.NoError(t, err)
	require.Equal(t, secrets.Credentials{Password: "v1"}, v.Get())
	require.NoError(t, os.Symlink("v2", filepath.Join(dir, "..next")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")))
	require.Equal(t, "v2", v.Fresh().Password)
}

func TestWhatFreshPutInForceIsNotNewsToCheck(t *testing.T) {
	path, v := token(t, "one")
	write(t, path, "two")
	require.Equal(t, "two", v.Fresh())
	changed, err := v.Check()
	require.NoError(t, err)
	require.False(t, changed)
}

func TestFollowTellsOfChangesAndFaultsUntilItsContextEnds(t *testing.T) {
	path, v := token(t, "one")
	news := make(chan string, 8)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		secrets.Follow(ctx, time.Millisecond,
			func(name string) { news <- "changed " + name },
			func(name string, _ error) { news <- "failed " + name }, v)
	}()
	write(t, path, "two")
	require.Equal(t, "changed token", <-news)
	write(t, path, "two\nlines")
	require.Equal(t, "failed token", <-news)
	stop()
	<-ended
}

func TestWhatCannotBeASecretIsRefusedWithAWord(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, says string }{
		"empty":     {"\n", "is empty"},
		"two lines": {"a\nb\n", "more than one line"},
	} {
		path := filepath.Join(dir, name)
		write(t, path, c.content)
		_, err := secrets.LoadToken("t", path)
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, path)
	}
	_, err := secrets.LoadToken("t", filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
