package integration_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// sidecarScope is what startSidecar's sidecars write for.
var sidecarScope = ranking.Scope{Tenant: "t", Model: model}

// aclUsers are the users of docs/security.md, as lines of an ACL file.
func aclUsers(shards int) rig.Option {
	user := func(name string, rules []string) string {
		return strings.ReplaceAll(strings.TrimPrefix(store.SetUser(name, rules), "ACL SETUSER "), " reset on >PASSWORD", " reset on >"+name+"-password")
	}
	var lines []string
	for name, rules := range map[string][]string{
		"lookupd": store.PodACL(), "kvsidecar": store.SidecarACL(sidecarScope, shards), "operator": store.OperatorACL(),
	} {
		lines = append(lines, "user "+user(name, rules))
	}
	return rig.WithACL(lines...)
}

// as is the URL of a topology for one of those users.
func as(url, user string) string {
	_, rest, _ := strings.Cut(url, "@")
	return "redis://" + user + ":" + user + "-password@" + rest
}

func denials(t *testing.T, servers []*rig.Server) (out []string) {
	t.Helper()
	for _, s := range servers {
		log, err := s.Client().ACLLog(t.Context(), 100).Result()
		require.NoError(t, err)
		for _, e := range log {
			out = append(out, fmt.Sprintf("%s: %s %s (%s)", e.Username, e.Reason, e.Object, e.Context))
		}
	}
	return out
}

func TestTheDocumentedACLsAreEnoughForEverythingThatPodsAndSidecarsDo(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (url string, servers []*rig.Server){
		"standalone": func(t *testing.T) (string, []*rig.Server) {
			s := rig.Standalone(t, aclUsers(1))
			return s.URL(), []*rig.Server{s}
		},
		"Sentinel": func(t *testing.T) (string, []*rig.Server) {
			s := rig.Sentinel(t, aclUsers(1), rig.WithConfig("masteruser rig", "masterauth rig-password"))
			return s.URL(), s.Servers
		},
		"Cluster": func(t *testing.T) (string, []*rig.Server) {
			s := rig.ClusterWithReplicas(t, 3, aclUsers(1), rig.WithConfig("masteruser rig", "masterauth rig-password"))
			return s.URL(), s.Nodes
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, servers := start(t)
			flags := []string{"--redis", as(url, "lookupd"), "--sweep-interval", "200ms"}
			pods := []*pod.Pod{pod.Start(t, flags...), pod.Start(t, append(flags, "--cache", "off")...)}
			if name != "standalone" {
				pods = append(pods, pod.Start(t, append(flags, "--read-from", "replica")...))
			}
			events := follow(t, pods[0])
			live(t, pods[0].Client, "tenant") // while the index is empty

			e := newSimEngine(t, 0)
			side := startSidecar(t, as(url, "kvsidecar"), e, model, "r")
			stored := ids(1, 20)
			e.publish(e.stored(stored, 0))
			everyPod(t, pods, "a stored prompt", stored, "r", 20)
			require.NoError(t, events())
			e.publish(e.removed(stored[12:]...))
			everyPod(t, pods, "what is left of it", stored, "r", 12)
			require.True(t, side.proc.Stop(settleLimit))
			require.Zero(t, side.proc.ExitCode())
			everyPod(t, pods, "a retired replica", stored, "", 0)
			rig.Eventually(t, settleLimit, "a sweep", func() error {
				if pods[0].Metric("inferencecache_sweep_pass_seconds_count")+pods[1].Metric("inferencecache_sweep_pass_seconds_count") == 0 {
					return fmt.Errorf("none")
				}
				return nil
			})
			require.Empty(t, denials(t, servers))
		})
	}
}

// follow streams the events of every tenant; the function returned waits for one.
func follow(t *testing.T, p *pod.Pod) func() error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*settleLimit)
	t.Cleanup(cancel)
	stream, err := p.Client.StreamCacheEvents(ctx, &pb.StreamEventsRequest{})
	require.NoError(t, err)
	_, err = stream.Header()
	require.NoError(t, err)
	return func() error {
		_, err := stream.Recv()
		return err
	}
}

func TestWhatAnACLDoesNotGrantIsRefused(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t, aclUsers(1))
	client := func(user string) *redis.Client {
		o := s.Options()
		o.Username, o.Password = user, user+"-password"
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	foreign := store.KeysOf(ranking.Scope{Tenant: "theirs", Model: model}, 0)
	require.NoError(t, s.Client().HSet(t.Context(), foreign.Head(), "v", "1-1").Err())
	require.NoError(t, s.Client().Set(t.Context(), "another program's", "x", 0).Err())
	byScript := func(key, call string) []any { return []any{"EVAL", "return redis.call(" + call + ")", 1, key} }
	dangerous := [][]any{
		{"FLUSHALL"}, {"FLUSHDB"}, {"CONFIG", "SET", "maxmemory", "1"}, {"KEYS", "*"}, {"SCAN", 0}, {"SHUTDOWN", "NOSAVE"},
		{"ACL", "SETUSER", "x"}, {"REPLICAOF", "NO", "ONE"}, {"SCRIPT", "FLUSH"}, {"CLIENT", "LIST"}, {"MONITOR"}, {"PUBLISH", "c", "m"}, {"MIGRATE", "h", 1, "k", 0, 1},
		{"GET", "another program's"}, {"SET", "another program's", "y"},
		byScript("another program's", "'GET', KEYS[1]"),
		{"EVAL", "return redis.call('FLUSHALL')", 0},
		{"EVAL", "return redis.call('KEYS', '*')", 0},
	}
	refused := map[string][][]any{
		"lookupd": {{"CONFIG", "GET", "*"}, {"INFO"}},
		"kvsidecar": {
			{"CONFIG", "GET", "*"}, {"INFO"}, {"MULTI"}, {"XREAD", "STREAMS", foreign.Log(), "0"},
			{"HGETALL", foreign.Head()}, {"HSET", foreign.Head(), "v", "2-2"}, {"HGETALL", foreign.Replicas()},
			byScript(foreign.Head(), "'HGET', KEYS[1], 'v'"), byScript(foreign.Head(), "'HSET', KEYS[1], 'v', '2-2'"),
			// A key that was not declared is held to the rules all the same.
			{"EVAL", "return redis.call('HSET', ARGV[1], 'v', '2-2')", 0, foreign.Head()},
			{"ZADD", store.CatalogTenantKey("theirs"), 1, "m"},
			{"DEL", store.KeysOf(sidecarScope, 0).Head()},
		},
		"operator": {
			{"HSET", foreign.Head(), "v", "2-2"}, {"DEL", foreign.Head()}, {"XADD", foreign.Log(), "*", "e", "x"}, {"PEXPIRE", foreign.Head(), 1},
			byScript(foreign.Head(), "'HSET', KEYS[1], 'v', '2-2'"),
		},
	}
	for user, calls := range refused {
		c := client(user)
		require.NoError(t, c.Ping(t.Context()).Err())
		for _, call := range append(calls, dangerous...) {
			err := c.Do(t.Context(), call...).Err()
			require.Error(t, err, "%s may %v", user, call)
			refusal := redis.HasErrorPrefix(err, "NOPERM") || strings.Contains(err.Error(), "ACL failure") || strings.Contains(err.Error(), "The user executing the script can't")
			require.True(t, refusal, "%s %v: %v", user, call, err)
		}
	}
	require.Equal(t, "1-1", s.Client().HGet(t.Context(), foreign.Head(), "v").Val())
	require.Equal(t, "x", s.Client().Get(t.Context(), "another program's").Val())

	// Through the store itself: a sidecar's user reaches no other model.
	stranger, err := store.New(store.Options{Redis: client("kvsidecar")})
	require.NoError(t, err)
	require.NoError(t, stranger.Ready(t.Context()))
	entry := []ranking.Entry{{Hash: []byte("x"), Tokens: 16, Tier: ranking.TierT1}}
	err = stranger.Report(t.Context(), &ranking.Report{Scope: ranking.Scope{Tenant: "theirs", Model: model}, Replica: "r", Scheme: "s", Entries: entry})
	require.ErrorContains(t, err, "NOPERM")
	require.NoError(t, stranger.Report(t.Context(), &ranking.Report{Scope: sidecarScope, Replica: "r", Scheme: "s", Entries: entry}))
}

func TestTheACLsInTheDocumentationAreThese(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	for name, rules := range map[string][]string{
		"lookupd": store.PodACL(), "operator": store.OperatorACL(),
		"kvsidecar": store.SidecarACL(ranking.Scope{Tenant: "acme", Model: "llama"}, 1),
	} {
		require.Contains(t, string(page), store.SetUser(name, rules))
	}
}
