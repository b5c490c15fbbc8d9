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
func gatherRedis(ctx context.Context, rdb redis.UniversalClient, name string, now func() time.Time) *RedisFacts {
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
		f.askScripts(ctx, rdb)
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
		f.askScripts(ctx, rdb)
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

// needed are the commands of a lookup pod besides those that reading the facts proves,
// each on a key of ours.
var needed = [][]any{
	{"evalsha", "0000000000000000000000000000000000000000", "1", store.LayoutKey},
	{"eval", "return 1", "1", store.LayoutKey},
	{"script|load", "return 1"},
	{"multi"},
	{"hmget", store.LayoutKey, "version"},
	{"hset", store.LayoutKey, "version", "1"},
	{"pexpire", store.LayoutKey, "1"},
	{"xread", "STREAMS", store.CatalogTenantsKey, "0"},
	{"xadd", store.CatalogTenantsKey, "*", "e", ""},
	{"zadd", store.CatalogTenantsKey, "1", "x"},
}

// askScripts runs a script that does nothing, and asks what the user may do.
func (f *RedisFacts) askScripts(ctx context.Context, rdb redis.UniversalClient) {
	f.ScriptErr = rdb.Eval(ctx, "return 1", []string{store.LayoutKey}).Err()
	user, err := rdb.Do(ctx, "ACL", "WHOAMI").Text()
	if err != nil {
		return // no ACL, or not for us
	}
	f.User = user
	for _, command := range needed {
		name, _ := command[0].(string)
		args := []any{"ACL", "DRYRUN", user}
		if base, sub, ok := strings.Cut(name, "|"); ok {
			args = append(args, base, sub)
		} else {
			args = append(args, name)
		}
		reply, err := rdb.Do(ctx, append(args, command[1:]...)...).Text()
		if err != nil {
			return // DRYRUN itself is refused: nothing can be told
		}
		if reply != "OK" {
			f.Denied = append(f.Denied, strings.ToUpper(strings.ReplaceAll(name, "|", " ")))
		}
	}
}
