package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of what is called healthy.
const (
	memoryWarn = 0.75 // of maxmemory
	memoryFail = 0.90
	machineMax = 0.80 // of the machine, where maxmemory sets no limit
	skewWarn   = time.Second
	skewFail   = time.Minute
)

func checkRedis(f *Facts, out *findings) {
	r := f.Redis
	if r == nil {
		return
	}
	if r.Err != nil {
		text, fix := unreachable(r.Err)
		out.add(Fail, "redis.reachable", r.Name, text, fix, r.Err.Error())
		return
	}
	out.ok("redis.reachable", r.Name, "%s", reachText(r))
	checkCluster(r, out)
	for i := range r.Nodes {
		checkNode(&r.Nodes[i], out)
	}
	checkClocks(r, out)
	checkScripts(r, out)
}

func reachText(r *RedisFacts) string {
	if r.Cluster {
		return "a Cluster of " + count(len(r.Nodes), "node") + " answers"
	}
	return "it answers"
}

func unreachable(err error) (text, fix string) {
	switch {
	case refused(err):
		return "Redis refuses the credentials", "Give user and password in the URL, percent-encoded: redis://user:password@host:port. Compare with what the pods' Secret has."
	case strings.Contains(err.Error(), "certificate"), strings.Contains(err.Error(), "tls:"):
		return "the TLS handshake with Redis fails", "Write rediss:// for a TLS port and redis:// for a plain one; name the CA with ?ca_file=."
	default:
		return "Redis does not answer", "Check host, port and network policy, and redis:// against rediss:// (TLS): the wrong one may hang. Pods that cannot reach it answer from memory for --max-staleness, then NO_HINT."
	}
}

func checkCluster(r *RedisFacts, out *findings) {
	const check = "redis.cluster"
	if !r.Cluster {
		if len(r.Nodes) > 0 && r.Nodes[0].ClusterEnabled {
			out.add(Fail, check, r.Name, "this server is a node of a Cluster, but the URL speaks to it alone", "Add ?cluster=true to the URL, or name several nodes with commas. Give pods and sidecars the same.")
		}
		return
	}
	evidence := fmt.Sprintf("cluster_state %s, %d of 16384 slots assigned, %d ok, %d failing", r.State, r.SlotsAssigned, r.SlotsOK, r.SlotsFail)
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Err != nil {
			out.add(Fail, "redis.node", n.Addr, "this node does not answer: its partitions give no hints and take no reports", "Bring it back, or let a replica take over (CLUSTER FAILOVER on it).", n.Err.Error())
		}
	}
	switch {
	case r.State != "ok" || r.SlotsAssigned != 16384 || r.SlotsFail > 0:
		out.add(Fail, check, r.Name, "slots of the Cluster are not served: partitions there give no hints and take no reports", "Look at CLUSTER NODES: bring back the lost nodes, or assign their slots (redis-cli --cluster fix).", evidence)
	default:
		out.ok(check, r.Name, "all 16384 slots are served")
	}
}

func checkNode(n *NodeFacts, out *findings) {
	if n.Err != nil {
		if redis.HasErrorPrefix(n.Err, "NOPERM") {
			out.add(Warn, "redis.node", n.Addr, "the server does not let us look at it", "Give doctor a user with +info +time, or run it with an administrator's.", n.Err.Error())
		}
		return
	}
	checkVersion(n, out)
	checkEviction(n, out)
	checkMemory(n, out)
	switch {
	case n.Loading:
		out.add(Fail, "redis.loading", n.Addr, "the server is still loading its data and refuses commands", "Wait. The index is soft state: without persistence it would be back at once, and sidecars report again.")
	case n.Role == "slave" && n.LinkDown:
		out.add(Warn, "redis.replication", n.Addr, "this replica has lost its primary", "Check the network between them: a failover to it now would lose what was written since.")
	}
	if n.SaveFailed {
		out.add(Fail, "redis.persistence", n.Addr, "the last save to disk failed: with stop-writes-on-bgsave-error Redis now refuses every report", "Make room on the disk, or switch saving off: CONFIG SET save \"\". The index does not need persistence.",
			fmt.Sprintf("%d changes since the last save", n.RDBChanges))
	} else if n.Version != "" {
		how := "off"
		if n.AOF {
			how = "append-only file"
		}
		out.ok("redis.persistence", n.Addr, "persistence is %s; the index is soft state and needs none", how)
	}
}

func checkVersion(n *NodeFacts, out *findings) {
	const check = "redis.version"
	major, _, _ := strings.Cut(n.Version, ".")
	switch v, err := strconv.Atoi(major); {
	case n.Version == "":
		out.ok(check, n.Addr, "the server does not tell its version (the embedded store does not)")
	case err != nil || v < 7:
		out.add(Fail, check, n.Addr, "Redis "+n.Version+" is too old: the scripts need 7.0", "Upgrade to Redis 7.0 or newer, or Valkey.", "version "+n.Version)
	default:
		out.ok(check, n.Addr, "version %s", n.Version)
	}
}

func checkEviction(n *NodeFacts, out *findings) {
	const check = "redis.eviction_policy"
	switch n.MaxPolicy {
	case "":
	case "noeviction":
		out.ok(check, n.Addr, "maxmemory-policy is noeviction")
	default:
		severity, when := Warn, "as soon as maxmemory is set"
		if n.Max > 0 {
			severity, when = Fail, "when memory runs short"
		}
		out.add(severity, check, n.Addr, fmt.Sprintf("maxmemory-policy is %s: %s Redis drops single keys of a partition, and counts no longer agree with records: replicas serve what they do not hold, or vanish", n.MaxPolicy, when),
			"CONFIG SET maxmemory-policy noeviction, and in the configuration file. Holds expire by themselves; a full Redis then refuses reports, which sidecars keep.",
			fmt.Sprintf("maxmemory %s, %d keys evicted since it started", maxText(n.Max), n.Evicted))
	}
}

func maxText(n int64) string {
	if n == 0 {
		return "not set"
	}
	return bytesText(n)
}

func checkMemory(n *NodeFacts, out *findings) {
	const check = "redis.memory"
	const fix = "Raise maxmemory, shorten evictionTTL or --key-ttl, or split the index over more nodes. At the limit reports are refused with OOM; lookups go on."
	share := 0.0
	if n.Max > 0 {
		share = float64(n.Used) / float64(n.Max)
	}
	evidence := fmt.Sprintf("%s used of maxmemory %s", bytesText(n.Used), maxText(n.Max))
	switch {
	case n.Used == 0:
	case share >= memoryFail:
		out.add(Fail, check, n.Addr, fmt.Sprintf("memory is %.0f %% full: reports are about to be refused", 100*share), fix, evidence)
	case share >= memoryWarn:
		out.add(Warn, check, n.Addr, fmt.Sprintf("memory is %.0f %% full", 100*share), fix, evidence)
	case n.Max == 0 && n.System > 0 && float64(n.Used) > machineMax*float64(n.System):
		out.add(Warn, check, n.Addr, "maxmemory is not set and the machine is nearly full: the kernel may kill Redis", "Set maxmemory to what the container or machine can give, with maxmemory-policy noeviction.",
			fmt.Sprintf("%s used of the machine's %s", bytesText(n.Used), bytesText(n.System)))
	case n.Max == 0:
		out.ok(check, n.Addr, "%s used; maxmemory is not set: set it below the container's limit, so that Redis refuses rather than dies", bytesText(n.Used))
	default:
		out.ok(check, n.Addr, "%s used of %s (%.0f %%)", bytesText(n.Used), bytesText(n.Max), 100*share)
	}
}

func checkClocks(r *RedisFacts, out *findings) {
	const check = "redis.clock"
	const fix = "Let NTP (chrony) run on the machines. Redis' clock is the only one for freshness and leases; nodes that disagree age each other's holds after a failover."
	var least, most time.Duration
	var uncertain time.Duration
	var evidence []string
	seen := false
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Err != nil || n.Uncertain == 0 && n.Skew == 0 {
			continue
		}
		if !seen {
			least, most, seen = n.Skew, n.Skew, true
		}
		least, most, uncertain = min(least, n.Skew), max(most, n.Skew), max(uncertain, n.Uncertain)
		evidence = append(evidence, fmt.Sprintf("%s: %s ahead of this machine (± %s)", n.Addr, ageText(n.Skew), ageText(n.Uncertain)))
	}
	if !seen {
		return
	}
	between := most - least - 2*uncertain
	here := max(most, -least) - uncertain
	switch {
	case between >= skewFail:
		out.add(Fail, check, r.Name, "the nodes' clocks are "+ageText(most-least)+" apart", fix, evidence...)
	case between >= skewWarn:
		out.add(Warn, check, r.Name, "the nodes' clocks are "+ageText(most-least)+" apart", fix, evidence...)
	case here >= skewFail:
		out.add(Warn, check, r.Name, "Redis' clock and this machine's are "+ageText(here)+" apart", fix+" If this machine is the one that is wrong, nothing is amiss.", evidence...)
	default:
		out.ok(check, r.Name, "clocks agree within %s", ageText(max(here, 0)+uncertain))
	}
}

func checkScripts(r *RedisFacts, out *findings) {
	const check = "redis.scripts"
	const fix = "Give the pods' user ~ic1:* and the commands of docs/security.md, or +@all on a Redis of their own. The user in doctor's own URL is judged, unless --acl-user names another."
	denied := append(slices.Clone(r.DeniedReads), r.DeniedWrites...)
	switch {
	case r.ScriptErr != nil && redis.HasErrorPrefix(r.ScriptErr, "NOPERM") && !r.Named:
		out.add(Fail, check, r.Name, "this user may not run scripts, and without them nothing can be read or written", fix, r.ScriptErr.Error(), "user "+r.User)
	case r.ScriptErr != nil && !redis.HasErrorPrefix(r.ScriptErr, "NOPERM"):
		out.add(Fail, check, r.Name, "a script that does nothing is refused", "Look at the error: a read-only replica, a Redis that refuses writes, or one that is loading.", r.ScriptErr.Error())
	case r.Named && r.RightsErr != nil:
		out.add(Fail, check, r.Name, fmt.Sprintf("the rights of user %q cannot be judged", r.User), "Is that the pods' user? Doctor's own needs +acl|dryrun.", r.RightsErr.Error())
	case r.ReadOnly:
		out.ok(check, r.Name, "user %q reads everything and writes nothing; name the pods' user with --acl-user to judge it", r.User)
	case len(denied) > 0:
		out.add(Fail, check, r.Name, fmt.Sprintf("user %q may not do what a lookup pod does", r.User), fix, "refused: "+strings.Join(denied, ", "))
	case r.Named:
		out.ok(check, r.Name, "user %q may do what a lookup pod does", r.User)
	default:
		out.ok(check, r.Name, "scripts are allowed")
	}
}

// checkRoles: the URL of a single server must name a primary.
func checkRoles(f *Facts, out *findings) {
	r := f.Redis
	if r == nil || r.Err != nil || r.Cluster || len(r.Nodes) == 0 || r.Nodes[0].Role != "slave" {
		return
	}
	out.add(Fail, "redis.role", r.Nodes[0].Addr, "the URL names a replica: it takes no writes, so reports fail", "Name the primary, or the Sentinels with ?master_name=.")
}
