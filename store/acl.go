package store

import (
	"slices"
	"strings"

	"inferencecache.io/lookuptier/ranking"
)

// What each component needs of Redis, as rules of ACL SETUSER; docs/security.md explains
// them. Scripts run as whoever calls them, so the commands inside count too.

var (
	// aclConnect is what the client does by itself on any topology.
	aclConnect = []string{"ping", "select", "client|setname", "command", "cluster|slots", "asking"}
	// aclScripts carries the scripts.
	aclScripts = []string{"evalsha", "eval", "script|load", "time"}
	// aclReads is what readers of a partition and of the catalog use.
	aclReads = []string{"exists", "pttl", "hget", "hmget", "hgetall", "hlen", "hkeys", "hvals", "xlen", "zcard", "zcount", "zscore", "zrange"}
	// aclWrites is what a report, an event or a lease changes.
	aclWrites = []string{"pexpire", "hset", "hdel", "xadd", "zadd", "zrem", "zremrangebyrank", "zremrangebyscore"}
	// aclWalks is what lookups add: a transaction, a replica's permission, the log.
	aclWalks = []string{"multi", "exec", "readonly", "xread", "hscan"}
	// aclSweeps is what a sweeper adds: its lock, and shorter logs.
	aclSweeps = []string{"get", "set", "del", "xtrim"}
	// aclLooks is what lookupctl doctor and explain add, which change nothing.
	aclLooks = []string{"multi", "exec", "readonly", "hscan", "hrandfield", "xread", "xrange", "type", "info", "config|get", "cluster|info", "acl|whoami", "acl|dryrun"}
)

// PodACL are the rules of a lookup pod: all of the index and nothing else.
func PodACL() []string {
	return acl([]string{keyPrefix + "*"}, aclConnect, aclScripts, aclReads, aclWrites, aclWalks, aclSweeps)
}

// SidecarACL are the rules of a sidecar of one model of a tenant, in an index of shards
// shards: its own partitions, what the catalog says of its tenant, and the two lists
// that all writers keep together.
func SidecarACL(s ranking.Scope, shards int) []string {
	var keys []string
	for shard := range max(shards, 1) {
		keys = append(keys, KeysOf(s, shard).base+"*")
	}
	keys = append(keys, LayoutKey, CatalogTenantsKey, CatalogPartitionsKey, CatalogTenantKey(s.Tenant))
	return acl(keys, aclConnect, aclScripts, aclReads, aclWrites)
}

// OperatorACL are the rules of lookupctl doctor and explain: all of the index, and no
// command that changes it. Redis takes a script for a write of the keys it names, so
// the keys are not marked as read only; the commands are what keeps it so.
func OperatorACL() []string {
	return acl([]string{keyPrefix + "*"}, aclConnect, aclScripts, aclReads, aclLooks)
}

func acl(keys []string, commands ...[]string) []string {
	rules := []string{"resetkeys", "resetchannels", "-@all"}
	for _, k := range keys {
		rules = append(rules, "~"+k)
	}
	var names []string
	for _, list := range commands {
		names = append(names, list...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		rules = append(rules, "+"+name)
	}
	return rules
}

// SetUser is the command that makes a user of these rules. The password, in clear after
// '>' or as a SHA-256 in hex after '#', is put in its place by who types it.
func SetUser(name string, rules []string) string {
	return "ACL SETUSER " + name + " reset on >PASSWORD " + strings.Join(rules, " ")
}
