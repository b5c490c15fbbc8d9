package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// generous is how long a test waits for what must happen; it fails only if it never does.
const generous = 30 * time.Second

func doc(tenant string, minimumMatched int) string {
	return fmt.Sprintf("apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: %s}\nspec: {minimumMatchedTokens: %d}\n",
		tenant, minimumMatched)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	// By a rename, as an editor that cares does: no reader sees half a file.
	require.NoError(t, os.WriteFile(path+".tmp", []byte(text), 0o644))
	require.NoError(t, os.Rename(path+".tmp", path))
}

// follower collects what a Watcher reports.
type follower struct {
	*policies.Watcher
	mu      sync.Mutex
	reloads []policies.Reload
}

// follow watches dir; with polling it hears of changes by that alone, since the
// notices would need longer than the test.
func follow(t *testing.T, dir string, polling bool) *follower {
	t.Helper()
	f := &follower{}
	opts := policies.Options{Debounce: 5 * time.Millisecond, Poll: time.Hour}
	if polling {
		opts.Debounce, opts.Poll = time.Hour, 10*time.Millisecond
	}
	opts.OnReload = func(r policies.Reload) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reloads = append(f.reloads, r)
	}
	opts.OnNoticesLost = func(err error) { t.Errorf("notices lost: %v", err) }
	w, err := policies.Watch(dir, opts)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	f.Watcher = w
	return f
}

func (f *follower) last() (policies.Reload, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.reloads) == 0 {
		return policies.Reload{}, 0
	}
	return f.reloads[len(f.reloads)-1], len(f.reloads)
}

func (f *follower) eventually(t *testing.T, tenant string, minimumMatched int) {
	t.Helper()
	require.Eventually(t, func() bool { return f.For(tenant).MinimumMatchedTokens == int64(minimumMatched) }, generous, time.Millisecond)
}

func (f *follower) eventuallyFails(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { r, _ := f.last(); return r.Err != nil }, generous, time.Millisecond)
	r, _ := f.last()
	require.ErrorContains(t, r.Err, text)
	require.Same(t, f.Current(), r.Set)
}

func TestLoadTakesThePolicyFilesOfADirectoryAndNothingElse(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	set, err := policies.Load(dir)
	require.NoError(t, err, "empty is fine")
	require.Zero(t, set.Len())

	write(t, filepath.Join(dir, "a.yaml"), doc("a", 1))
	write(t, filepath.Join(dir, "b.yml"), doc("b", 2))
	write(t, filepath.Join(dir, "README.md"), "not: [a policy")
	write(t, filepath.Join(dir, ".hidden.yaml"), "not: [a policy")
	write(t, filepath.Join(elsewhere, "c"), doc("c", 3))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d.yaml"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "c"), filepath.Join(dir, "c.yaml")))
	set, err = policies.Load(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, set.Tenants())
}

func TestLoadSaysWhatItCouldNotRead(t *testing.T) {
	dir := t.TempDir()
	_, err := policies.Load(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "policy directory: ")

	require.NoError(t, os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "a.yaml")))
	_, err = policies.Load(dir)
	require.ErrorContains(t, err, "a.yaml", "a dangling link is no missing policy")

	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	write(t, filepath.Join(dir, "a.yaml"), doc("a", -1))
	_, err = policies.Load(dir)
	require.ErrorContains(t, err, filepath.Join(dir, "a.yaml")+":4: spec.minimumMatchedTokens: ")
}

func TestWatchRefusesToStartWithoutAGoodSet(t *testing.T) {
	dir := t.TempDir()
	_, err := policies.Watch(filepath.Join(dir, "nowhere"), policies.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	write(t, filepath.Join(dir, "a.yaml"), "kind: Pod")
	_, err = policies.Watch(dir, policies.Options{})
	require.ErrorContains(t, err, "kind")
}

func TestAChangedFileTakesEffect(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprintf("polling %v", polling), func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a.yaml"), doc("a", 1))
			f := follow(t, dir, polling)
			require.EqualValues(t, 1, f.For("a").MinimumMatchedTokens)
			before := f.Current()

			write(t, filepath.Join(dir, "a.yaml"), doc("a", 2))
			f.eventually(t, "a", 2)
			write(t, filepath.Join(dir, "b.yaml"), doc("b", 3))
			f.eventually(t, "b", 3)
			require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
			f.eventually(t, "a", 64)

			require.EqualValues(t, 1, before.For("a").MinimumMatchedTokens, "a set never changes")
			good, bad := f.Reloads()
			require.GreaterOrEqual(t, good, uint64(3))
			require.Zero(t, bad)
		})
	}
}

func TestABadReloadKeepsTheLastGoodSet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), doc("a", 1))
	f := follow(t, dir, true)

	write(t, filepath.Join(dir, "a.yaml"), doc("a", -1))
	f.eventuallyFails(t, "a.yaml:4: spec.minimumMatchedTokens: ")
	require.EqualValues(t, 1, f.For("a").MinimumMatchedTokens)

	// Mended to what it was: a reload again, so that whoever shows the failure stops.
	write(t, filepath.Join(dir, "a.yaml"), doc("a", 1))
	require.Eventually(t, func() bool { r, _ := f.last(); return r.Err == nil }, generous, time.Millisecond)
	good, bad := f.Reloads()
	require.EqualValues(t, 1, good)
	require.EqualValues(t, 1, bad, "the same mistake is one failure, however often it is read")
}

func TestADirectoryThatVanishesKeepsTheLastGoodSetUntilItIsBack(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprintf("polling %v", polling), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "policies")
			require.NoError(t, os.Mkdir(dir, 0o755))
			write(t, filepath.Join(dir, "a.yaml"), doc("a", 1))
			f := follow(t, dir, polling)

			require.NoError(t, os.Rename(dir, dir+".old"))
			if polling { // nobody tells when a directory that is not there comes back
				f.eventuallyFails(t, "no such file or directory")
				require.NoError(t, os.Mkdir(dir, 0o755))
				write(t, filepath.Join(dir, "a.yaml"), doc("a", 2))
				f.eventually(t, "a", 2)
			}
			require.NotEqualValues(t, 64, f.For("a").MinimumMatchedTokens)
		})
	}
}

// mount writes files the way Kubernetes mounts a ConfigMap: the names are links
// through the link ..data, and an update replaces that one link.
func mount(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, name), []byte(text), 0o644))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			require.ErrorIs(t, err, os.ErrExist)
		}
	}
	require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

func TestAConfigMapUpdateIsNoticed(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "..2026_01", map[string]string{"a.yaml": doc("a", 1), "b.yaml": doc("b", 1)})
	f := follow(t, dir, false)
	require.Equal(t, []string{"a", "b"}, f.Current().Tenants(), "each file once, not again through ..data")
	for i := 2; i < 5; i++ {
		mount(t, dir, fmt.Sprintf("..2026_%02d", i), map[string]string{"a.yaml": doc("a", i), "b.yaml": doc("b", 10*i)})
		require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%02d", i-1))))
		f.eventually(t, "a", i)
		f.eventually(t, "b", 10*i)
	}
}

func TestAReplacedDirectoryIsFollowedOn(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "policies")
	for v := 1; v <= 2; v++ {
		version := filepath.Join(parent, fmt.Sprintf("v%d", v))
		require.NoError(t, os.Mkdir(version, 0o755))
		write(t, filepath.Join(version, "a.yaml"), doc("a", v))
	}
	require.NoError(t, os.Symlink("v1", dir))
	f := follow(t, dir, true)
	require.NoError(t, os.Symlink("v2", dir+".new"))
	require.NoError(t, os.Rename(dir+".new", dir))
	f.eventually(t, "a", 2)
}

func TestCloseStopsAndKeepsTheLastSet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), doc("a", 1))
	f := follow(t, dir, false)
	f.Close()
	f.Close()
	require.EqualValues(t, 1, f.For("a").MinimumMatchedTokens)
	_, n := f.last()
	require.Zero(t, n, "nothing changed, so nothing was reloaded")
}

func TestLookupsReadTheSetWhileItIsReplaced(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), doc("a", 1))
	f := follow(t, dir, false)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if n := f.For("a").MinimumMatchedTokens; n < 1 || n > 5 {
						t.Errorf("minimumMatchedTokens is %d", n)
						return
					}
				}
			}
		})
	}
	for i := 2; i <= 5; i++ {
		write(t, filepath.Join(dir, "a.yaml"), doc("a", i))
		f.eventually(t, "a", i)
	}
	close(stop)
	readers.Wait()
	require.Zero(t, testing.AllocsPerRun(100, func() { f.For("a") }))
}

func TestASetThatOutlivesTheIndexIsNotPutInForce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	ttl := func(d string) {
		write(t, file, "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: t}\nspec:\n  minimumMatchedTokens: 1\n  evictionTTL: "+d+"\n")
	}
	reloads := make(chan policies.Reload, 10)
	opts := policies.Options{Debounce: time.Millisecond, KeyTTL: 24 * time.Hour, OnReload: func(r policies.Reload) { reloads <- r }}
	ttl("24h")
	_, err := policies.Watch(dir, opts)
	require.ErrorContains(t, err, file+`:6: spec.evictionTTL: is 24h0m0s for tenant "t", and the lookup pods' --key-ttl 24h0m0s: write less`)

	ttl("23h")
	w, err := policies.Watch(dir, opts)
	require.NoError(t, err)
	defer w.Close()
	ttl("48h")
	r := <-reloads
	require.ErrorContains(t, r.Err, "spec.evictionTTL: is 48h")
	require.Equal(t, 23*time.Hour, w.For("t").EvictionTTL)
	ttl("1h")
	require.NoError(t, (<-reloads).Err)
	require.Equal(t, time.Hour, w.For("t").EvictionTTL)
}

// Nothing tells of a directory that appears, and the next poll may be far.
func TestADirectoryThatComesBackIsFoundWithoutThePoll(t *testing.T) {
	for name, back := range map[string]func(dir string) error{
		"moved back": func(dir string) error { return os.Rename(dir+".away", dir) },
		"made anew": func(dir string) error {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(doc("t", 7)), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "policies")
			require.NoError(t, os.Mkdir(dir, 0o755))
			write(t, filepath.Join(dir, "p.yaml"), doc("t", 7))
			reloads := make(chan policies.Reload, 10)
			w, err := policies.Watch(dir, policies.Options{Debounce: time.Millisecond, Poll: time.Hour, OnReload: func(r policies.Reload) { reloads <- r }})
			require.NoError(t, err)
			defer w.Close()
			require.NoError(t, os.Rename(dir, dir+".away"))
			require.Error(t, (<-reloads).Err)
			require.NoError(t, back(dir))
			for r := range reloads { // a directory made anew is empty for a moment
				if r.Err == nil && r.Set.Len() == 1 {
					break
				}
			}
			require.EqualValues(t, 7, w.For("t").MinimumMatchedTokens)
			// It is followed again.
			write(t, filepath.Join(dir, "p.yaml"), doc("t", 8))
			require.NoError(t, (<-reloads).Err)
			require.EqualValues(t, 8, w.For("t").MinimumMatchedTokens)
		})
	}
}
