package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/store"
)

// maxNodes bounds how many servers of a Cluster are asked.
const maxNodes = 128

// gatherRedis asks every server that the client knows.
func gatherRedis(ctx context.Context, rdb redis.UniversalClient, name, user string, now func() time.Time) *RedisFacts {
	f := &RedisFacts{Name: name}
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		one, isOne := rdb.(*redis.Client)
		if !isOne {
			f.Err = errors.New("this kind of client cannot be examined")
			return f
		}
		if f.Err = one.Ping(ctx).Err(); f.Err != nil && (!answered(f.Err) || refused(f.Err)) {
			return f
		}
		f.Err = nil
		f.Nodes = []NodeFacts{askNode(ctx, one, now)}
		if f.Nodes[0].ClusterEnabled {
			f.clusterInfo(ctx, one)
		}
		f.askScripts(ctx, rdb, user)
		return f
	}
	f.Cluster = true
	var mu sync.Mutex
	f.Err = cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		n := askNode(ctx, node, now)
		mu.Lock()
		defer mu.Unlock()
		if len(f.Nodes) < maxNodes {
			f.Nodes = append(f.Nodes, n)
		}
		if f.State == "" && n.Err == nil {
			f.clusterInfo(ctx, node)
		}
		return nil
	})
	slices.SortFunc(f.Nodes, func(a, b NodeFacts) int { return strings.Compare(a.Addr, b.Addr) })
	if len(f.Nodes) > 0 && slices.ContainsFunc(f.Nodes, func(n NodeFacts) bool { return n.Err == nil }) {
		f.Err = nil
	} else if f.Err == nil && len(f.Nodes) > 0 {
		f.Err = f.Nodes[0].Err
	}
	if f.Err == nil {
		f.askScripts(ctx, rdb, user)
	}
	return f
}

// answered tells an error of the server, which answers, from one of the connection.
func answered(err error) bool {
	var fromServer redis.Error
	return errors.As(err, &fromServer)
}

// refused tells that the server does not know us.
func refused(err error) bool {
	return redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS")
}

func askNode(ctx context.Context, c *redis.Client, now func() time.Time) NodeFacts {
	n := NodeFacts{Addr: c.Options().Addr}
	info, err := c.Info(ctx).Result()
	if err != nil {
		n.Err = err
		return n
	}
	n.read(parseInfo(info))
	before := now()
	t, err := c.Time(ctx).Result()
	after := now()
	if err == nil {
		n.Uncertain = after.Sub(before) / 2
		n.Skew = t.Sub(before.Add(n.Uncertain))
	}
	return n
}

func parseInfo(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			m[k] = v
		}
	}
	return m
}

func (n *NodeFacts) read(info map[string]string) {
	number := func(key string) int64 {
		v, _ := strconv.ParseInt(info[key], 10, 64) // not told = 0
		return v
	}
	n.Version = cmp.Or(info["valkey_version"], info["redis_version"])
	n.Role = info["role"]
	n.MaxPolicy = info["maxmemory_policy"]
	n.Used, n.Max, n.System = number("used_memory"), number("maxmemory"), number("total_system_memory")
	n.Evicted = number("evicted_keys")
	n.Loading = number("loading") != 0 || number("async_loading") != 0
	n.LinkDown = info["master_link_status"] == "down"
	n.ClusterEnabled = number("cluster_enabled") != 0
	n.AOF = number("aof_enabled") != 0
	n.SaveFailed = info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err"
	n.RDBChanges = number("rdb_changes_since_last_save")
}

func (f *RedisFacts) clusterInfo(ctx context.Context, c *redis.Client) {
	text, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		f.State = "unknown: " + err.Error()
		return
	}
	info := parseInfo(text)
	f.State = info["cluster_state"]
	for key, dst := range map[string]*int{
		"cluster_slots_assigned": &f.SlotsAssigned, "cluster_slots_ok": &f.SlotsOK, "cluster_slots_fail": &f.SlotsFail,
	} {
		*dst, _ = strconv.Atoi(info[key]) // not told = 0
	}
}

// needed are commands of a lookup pod, each on a key of ours; writes change the index,
// the others only read it.
var needed = []struct {
	writes bool
	words  []any
}{
	{false, []any{"evalsha", "0000000000000000000000000000000000000000", "1", store.LayoutKey}},
	{false, []any{"eval", "return 1", "1", store.LayoutKey}},
	{false, []any{"script|load", "return 1"}},
	{false, []any{"multi"}},
	{false, []any{"hmget", store.LayoutKey, "version"}},
	{false, []any{"xread", "STREAMS", store.CatalogTenantsKey, "0"}},
	{true, []any{"hset", store.LayoutKey, "version", "1"}},
	{true, []any{"pexpire", store.LayoutKey, "1"}},
	{true, []any{"xadd", store.CatalogTenantsKey, "*", "e", ""}},
	{true, []any{"zadd", store.CatalogTenantsKey, "1", "x"}},
}

// allWrites is how many of needed write.
const allWrites = 4

// askScripts runs a script that does nothing, and asks what a user may do: ours, or the
// one that is named.
func (f *RedisFacts) askScripts(ctx context.Context, rdb redis.UniversalClient, user string) {
	f.ScriptErr = rdb.Eval(ctx, "return 1", []string{store.LayoutKey}).Err()
	f.User, f.Named = user, user != ""
	if user == "" {
		var err error
		if f.User, err = rdb.Do(ctx, "ACL", "WHOAMI").Text(); err != nil {
			return // no ACL, or not for us
		}
	}
	for _, n := range needed {
		name, _ := n.words[0].(string)
		args := []any{"ACL", "DRYRUN", f.User}
		for word := range strings.SplitSeq(name, "|") {
			args = append(args, word)
		}
		reply, err := rdb.Do(ctx, append(args, n.words[1:]...)...).Text()
		if err != nil {
			f.RightsErr = err // DRYRUN itself is refused, or there is no such user
			return
		}
		if reply == "OK" {
			continue
		}
		if n.writes {
			f.DeniedWrites = append(f.DeniedWrites, strings.ToUpper(name))
		} else {
			f.DeniedReads = append(f.DeniedReads, strings.ToUpper(strings.ReplaceAll(name, "|", " ")))
		}
	}
	f.ReadOnly = !f.Named && len(f.DeniedReads) == 0 && len(f.DeniedWrites) == allWrites
}
