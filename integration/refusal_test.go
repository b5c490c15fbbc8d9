package integration_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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

// All pods at once must not end because somebody started one with another --shards on
// a Redis that was flushed.
func TestARunningPodOutlivesALayoutThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t)
	c := s.Client()
	p := pod.Start(t, "--redis", s.URL(), "--shards", "2", "--sweep-interval", "100ms")
	live(t, p.Client, "tenant")
	for name, change := range map[string]func(){
		"set":                func() { require.NoError(t, c.HSet(t.Context(), store.LayoutKey, "shards", 7).Err()) },
		"of another program": func() { require.NoError(t, c.Set(t.Context(), store.LayoutKey, "mine", 0).Err()) },
		"of a later version": func() { require.NoError(t, c.HSet(t.Context(), store.LayoutKey, "version", 99).Err()) },
		"of who was faster after a flush": func() {
			_, err := c.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
				tx.FlushAll(t.Context())
				tx.HSet(t.Context(), store.LayoutKey, "version", store.LayoutVersion, "shards", 7)
				return nil
			})
			require.NoError(t, err)
		},
	} {
		change()
		rig.Eventually(t, settleLimit, "not being ready, layout "+name, func() error {
			return mentions(p.Ready(), "layout mismatch")
		})
		require.NoError(t, answers(t, p.Client, "tenant", chain(1, 20), "NO_HINT", "")(), name)
		require.ErrorContains(t, report(t.Context(), p.Client, "tenant", "r1", chain(1, 20)), "layout mismatch", name)
		require.InDelta(t, 1, p.Metric("inferencecache_layout_mismatch"), 0)
		require.NoError(t, c.Del(t.Context(), store.LayoutKey).Err())
		p.WaitReady()
		live(t, p.Client, "tenant")
	}
}
