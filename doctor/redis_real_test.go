package doctor

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestAHealthyTierHasNoFindings(t *testing.T) {
	server := rig.Standalone(t)
	x := openIndex(t, server.Client(), 1)
	x.holds(scope, "vllm", "engine-0", 40, 16, &ranking.Stats{HitRate: 0.5, Pressure: 0.2})
	x.holds(scope, "vllm", "engine-1", 40, 16, nil)
	_, err := x.RenewLease(t.Context(), scope, "engine-0", time.Hour)
	require.NoError(t, err)
	r := x.examine()
	require.Empty(t, troubles(r))
	require.Equal(t, "2 replicas: 1 with a lease that runs, 1 without one (they live by evictionTTL)", find(t, r, "producers.lease").Text)
}

func TestDoctorWritesNothing(t *testing.T) {
	server := rig.Standalone(t)
	x := openIndex(t, server.Client(), 2)
	for i := range 20 {
		x.holds(scope, "vllm", "engine-"+strconv.Itoa(i), 20, 16, nil)
	}
	changes := func() string {
		info, err := x.rdb.Info(t.Context(), "persistence").Result()
		require.NoError(t, err)
		return parseInfo(info)["rdb_changes_since_last_save"]
	}
	before := changes()
	x.examine(func(o *Options) { o.PolicyDir = t.TempDir() })
	require.Equal(t, before, changes())

	fresh := rig.Standalone(t).Client()
	r := (&index{t: t, rdb: fresh}).examine()
	require.Equal(t, []string{"warn layout"}, troubles(r))
	require.Zero(t, fresh.DBSize(t.Context()).Val(), "not even the layout is written")
}

func TestWhatIsWrongWithRedisIsNamed(t *testing.T) {
	server := rig.Standalone(t)
	x := openIndex(t, server.Client(), 1)
	x.holds(scope, "vllm", "engine-0", 4, 16, nil)
	ctx := t.Context()
	require.NoError(t, x.rdb.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	f := find(t, x.examine(), "redis.eviction_policy")
	require.Equal(t, Warn, f.Severity)
	info, err := x.rdb.Info(ctx, "memory").Result()
	require.NoError(t, err)
	used, err := strconv.Atoi(parseInfo(info)["used_memory"])
	require.NoError(t, err)
	require.NoError(t, x.rdb.ConfigSet(ctx, "maxmemory", strconv.Itoa(used*115/100)).Err())
	r := x.examine()
	f = find(t, r, "redis.eviction_policy")
	require.Equal(t, Fail, f.Severity)
	require.Contains(t, f.Text, "allkeys-lru")
	require.Contains(t, f.Fix, "noeviction")
	require.NotEqual(t, OK, find(t, r, "redis.memory").Severity)
	require.NoError(t, x.rdb.ConfigSet(ctx, "maxmemory", "0").Err())

	require.Contains(t, find(t, x.examine(func(o *Options) { o.Shards = 4 }), "layout").Text, "laid out for 1 shard, but components are started with --shards 4")
	require.NoError(t, x.rdb.HSet(ctx, store.LayoutKey, "version", "9").Err())
	require.Contains(t, find(t, x.examine(), "layout").Text, `layout version "9"`)
	require.NoError(t, x.rdb.Del(ctx, store.LayoutKey).Err())
	require.Contains(t, find(t, x.examine(), "layout").Text, "the layout key is gone")
	require.NoError(t, x.rdb.Set(ctx, store.LayoutKey, "x", 0).Err())
	require.Contains(t, find(t, x.examine(), "layout").Text, "another program wrote it")
}

func TestARedisThatDoesNotAnswerCostsTheTimeoutAndNoMore(t *testing.T) {
	server := rig.Standalone(t)
	rdb := server.Client()
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	r, err := Examine(ctx, Options{Redis: rdb, RedisName: "redis"})
	require.NoError(t, err)
	require.Equal(t, []string{"fail redis.reachable"}, troubles(r))
}

func TestAUserWithoutScriptsIsNamed(t *testing.T) {
	server := rig.Standalone(t, rig.WithACL(
		"user viewer on >secret ~ic1:* +@read +@connection +info +time +cluster",
		"user pods on >secret ~ic1:* +@all -xread +acl|whoami +acl|dryrun",
		"user operator on >secret ~ic1:* +@read +@connection +eval +evalsha +script|load +multi +exec +info +time +acl|whoami +acl|dryrun -hrandfield",
	))
	for user, want := range map[string]string{"viewer": "may not run scripts", "pods": `user "pods" may not do what a lookup pod does`} {
		rdb, err := store.Dial(store.DialOptions{URL: server.URLAs(user, "secret")})
		require.NoError(t, err)
		f := find(t, (&index{t: t, rdb: rdb}).examine(), "redis.scripts")
		require.NoError(t, rdb.Close())
		require.Equal(t, Fail, f.Severity)
		require.Contains(t, f.Text, want)
	}
	operator, err := store.Dial(store.DialOptions{URL: server.URLAs("operator", "secret")})
	require.NoError(t, err)
	defer func() { _ = operator.Close() }()
	x := openIndex(t, server.Client(), 1)
	x.holds(scope, "vllm", "a", 40, 16, nil)
	x.holds(scope, "vllm", "b", 40, 32, nil)
	x.rdb = operator
	r := x.examine()
	require.Equal(t, []string{"warn producers.block_size"}, troubles(r), "sampled without HRANDFIELD too")
	require.Contains(t, find(t, r, "redis.scripts").Text, "reads everything and writes nothing")
	as := func(user string) Finding {
		return find(t, x.examine(func(o *Options) { o.ACLUser = user }), "redis.scripts")
	}
	require.Equal(t, []string{"refused: XREAD"}, as("pods").Evidence)
	require.Equal(t, OK, as("rig").Severity)
	require.Contains(t, as("nobody").Text, "cannot be judged")

	rdb, err := store.Dial(store.DialOptions{URL: server.URLAs("nobody", "wrong")})
	require.NoError(t, err)
	defer func() { _ = rdb.Close() }()
	require.Contains(t, find(t, (&index{t: t, rdb: rdb}).examine(), "redis.reachable").Text, "refuses the credentials")
}

func TestTheOperatorsRightsAreEnough(t *testing.T) {
	users := rig.WithACL("user operator on >secret "+strings.Join(store.OperatorACL(), " "), "user pods on >secret "+strings.Join(store.PodACL(), " "))
	server := rig.Standalone(t, users)
	x := openIndex(t, server.Client(), 1)
	x.holds(scope, "vllm", "a", 40, 16, nil)
	operator, err := store.Dial(store.DialOptions{URL: server.URLAs("operator", "secret")})
	require.NoError(t, err)
	defer func() { _ = operator.Close() }()
	x.rdb = operator
	r := x.examine(func(o *Options) { o.ACLUser = "pods" })
	require.Empty(t, troubles(r))
	require.Equal(t, `user "pods" may do what a lookup pod does`, find(t, r, "redis.scripts").Text)
	require.Contains(t, find(t, x.examine(), "redis.scripts").Text, "reads everything and writes nothing")

	set := rig.Cluster(t, 1, users)
	x = openIndex(t, set.Client(), 2)
	x.holds(scope, "vllm", "a", 40, 16, nil)
	url := strings.Replace(set.Nodes[0].URLAs("operator", "secret"), "/0", "", 1) + "?cluster=true"
	cluster, err := store.Dial(store.DialOptions{URL: url})
	require.NoError(t, err)
	defer func() { _ = cluster.Close() }()
	x.rdb = cluster
	require.Empty(t, troubles(x.examine()))
}

func TestWhatIsWrongWithProducersIsNamed(t *testing.T) {
	server := rig.Standalone(t)
	x := openIndex(t, server.Client(), 1)
	x.holds(scope, "vllm", "engine-0", 40, 16, &ranking.Stats{Pressure: 1})
	x.holds(scope, "vllm", "engine-1", 40, 32, nil)
	x.holds(scope, "vllm-v1", "engine-2", 40, 16, nil)
	x.holds(scope, "vllm", "Engine-2", 40, 16, nil)
	x.holds(ranking.Scope{Tenant: "Demo", Model: "llama"}, "vllm", "engine-3", 4, 16, nil)
	x.holds(ranking.Scope{Tenant: "demo", Model: "llama\n"}, "vllm", "engine-3", 4, 16, nil)
	x.holds(scope, "", "hollow", 0, 16, &ranking.Stats{HitRate: 0.2})
	_, err := x.RenewLease(t.Context(), scope, "engine-1", time.Millisecond)
	require.NoError(t, err)
	var r *Report
	rig.Eventually(t, generous, "the lease lapses", func() error {
		r = x.examine()
		if f := find(t, r, "producers.lease"); f.Severity == OK {
			return context.DeadlineExceeded
		}
		return nil
	})
	require.ElementsMatch(t, []string{
		"warn producers.lease", "warn producers.pressure", "warn producers.no_holds", "warn producers.schemes",
		"warn producers.block_size", "warn names", "warn names", "warn names", "warn names",
	}, troubles(r))
	lease := find(t, r, "producers.lease")
	require.Contains(t, lease.Text, "1 of 5 replicas let the lease lapse")
	require.Contains(t, lease.Evidence[0], `"engine-1": lease lapsed`)
	require.Contains(t, find(t, r, "producers.schemes").Evidence, `"vllm-v1": "engine-2"`)
	require.Contains(t, find(t, r, "producers.block_size").Evidence, `multiples of 32: "engine-1"`)
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	server := rig.Standalone(t)
	x := openIndex(t, server.Client(), 1)
	ctx := t.Context()
	x.holds(scope, "vllm", "engine-0", 4, 16, nil)
	k := store.KeysOf(scope, 0)
	require.NoError(t, x.rdb.HSet(ctx, k.Replicas(), "broken", "xx").Err())
	require.NoError(t, x.rdb.HSet(ctx, k.Blocks(store.SpaceSuffix(ranking.Space{Scheme: "vllm"})), "odd", "xx").Err())
	require.NoError(t, x.rdb.HSet(ctx, k.Serving(), store.CountField(0, 77), "3").Err())
	require.NoError(t, x.rdb.HSet(ctx, k.Spaces(), "x", "3").Err())
	other := ranking.Scope{Tenant: "demo", Model: "other"}
	x.holds(other, "vllm", "engine-0", 4, 16, nil)
	require.NoError(t, x.rdb.Del(ctx, store.KeysOf(other, 0).Replicas()).Err())
	require.NoError(t, x.rdb.Set(ctx, store.KeysOf(other, 0).Replicas(), "x", 0).Err())
	require.NoError(t, x.rdb.ZAdd(ctx, store.CatalogPartitionsKey, redis.Z{Score: 1, Member: "x"}).Err())
	r := x.examine()
	f := find(t, r, "index.garbage")
	require.Len(t, f.Evidence, 5)
	require.Contains(t, find(t, r, "producers.orphans").Evidence, "shard 0: number 77 counts 3 holds")
}

func TestASweeperThatIsBehindIsNamed(t *testing.T) {
	server := rig.Standalone(t)
	x := openIndex(t, server.Client(), 1)
	x.holds(scope, "vllm", "engine-0", 4, 16, nil)
	require.NoError(t, x.Publish(t.Context(), &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: "engine-0"}))
	x.holds(scope, "vllm", "engine-1", 4, 16, nil)
	// A partition that another one was swept after: only the first is behind.
	other := ranking.Scope{Tenant: "demo", Model: "other"}
	x.holds(other, "vllm", "engine-0", 4, 16, nil)
	old := time.Now().Add(-time.Hour).UnixMilli()
	require.NoError(t, x.rdb.HSet(t.Context(), store.KeysOf(scope, 0).Head(), "s", old).Err())
	f := find(t, x.examine(), "sweeper")
	require.Equal(t, Warn, f.Severity)
	require.Len(t, f.Evidence, 1)
	require.Regexp(t, `last swept 1h0m\d+s ago; records of cleared replicas wait in it`, f.Evidence[0])
	require.NoError(t, x.rdb.HSet(t.Context(), store.KeysOf(other, 0).Head(), "s", old).Err())
	require.Contains(t, find(t, x.examine(), "sweeper").Text, "nobody sweeps")
	require.Equal(t, OK, find(t, x.examine(func(o *Options) { o.SweepInterval = time.Hour }), "sweeper").Severity)
}

func TestBoundsAreSaid(t *testing.T) {
	server := rig.Standalone(t)
	x := openIndex(t, server.Client(), 1)
	for i := range 5 {
		x.holds(ranking.Scope{Tenant: "t", Model: strconv.Itoa(i)}, "vllm", "engine-0", 2, 16, nil)
	}
	f := find(t, x.examine(func(o *Options) { o.Limits.Partitions = 2 }), "doctor.gaps")
	require.Equal(t, []string{"3 of 5 partitions were not looked at: raise --max-partitions"}, f.Evidence)
}

func TestAClusterIsExaminedNodeByNode(t *testing.T) {
	set := rig.Cluster(t, 3)
	x := openIndex(t, set.Client(), 4)
	for i := range 8 {
		x.holds(scope, "vllm", "engine-"+strconv.Itoa(i), 20, 16, nil)
	}
	r := x.examine()
	require.Empty(t, troubles(r))
	require.Equal(t, "all 16384 slots are served", find(t, r, "redis.cluster").Text)
	versions := 0
	for _, f := range r.Findings {
		if f.Check == "redis.version" {
			versions++
		}
	}
	require.Equal(t, 3, versions)

	alone := set.Nodes[0].Client()
	require.Contains(t, find(t, (&index{t: t, rdb: alone}).examine(), "redis.cluster").Fix, "?cluster=true")

	set.Nodes[2].Kill()
	rig.Eventually(t, generous, "the lost slots are seen", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := Examine(ctx, Options{Redis: x.rdb, RedisName: "cluster"})
		if err != nil {
			return err
		}
		for _, f := range r.Findings {
			if f.Severity == Fail && (f.Check == "redis.node" || f.Check == "redis.cluster") {
				return nil
			}
		}
		return context.DeadlineExceeded
	})
}
