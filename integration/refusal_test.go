package integration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/store"
)

func TestAPodRefusesALayoutThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t)
	c := s.Client()
	pod.Start(t, "--redis", s.URL(), "--shards", "2").Stop()
	for name, change := range map[string]struct {
		field, value string
		says         string
	}{
		"shards":  {"shards", "3", "--shards 3"},
		"version": {"version", "99", "99"},
	} {
		before, err := c.HGetAll(t.Context(), store.LayoutKey).Result()
		require.NoError(t, err)
		require.NoError(t, c.HSet(t.Context(), store.LayoutKey, change.field, change.value).Err())
		keys := c.DBSize(t.Context()).Val()

		refused := pod.Launch(t, "--redis", s.URL(), "--shards", "2")
		select {
		case <-refused.Done():
		case <-time.After(settleLimit):
			t.Fatalf("%s: the pod goes on:\n%s", name, refused.Output())
		}
		require.Positive(t, refused.ExitCode(), name)
		require.Contains(t, refused.Output(), change.says, name)
		require.Equal(t, keys, c.DBSize(t.Context()).Val(), "%s: a refused pod touched the data", name)
		require.NoError(t, c.HSet(t.Context(), store.LayoutKey, before).Err())
	}
	live(t, pod.Start(t, "--redis", s.URL(), "--shards", "2").Client, "tenant")
}
