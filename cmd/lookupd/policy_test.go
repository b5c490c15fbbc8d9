package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func writePolicy(t *testing.T, dir, spec string) {
	t.Helper()
	doc := fmt.Sprintf("apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: t}\nspec: %s\n", spec)
	tmp := filepath.Join(dir, ".next")
	require.NoError(t, os.WriteFile(tmp, []byte(doc), 0o600))
	require.NoError(t, os.Rename(tmp, filepath.Join(dir, "p.yaml")))
}

func TestPoliciesAreFollowedAndABadOneLeavesTheLastGood(t *testing.T) {
	dir := t.TempDir()
	writePolicy(t, dir, "{strategy: {requireChain: true}}")
	p := launch(t, "--policy-dir", dir)
	p.waitReady()
	exact := lookup("t")
	exact.PrefixHash = []byte("a")
	require.Equal(t, "POLICY_REQUIRES_CHAIN", p.ask(exact))
	require.Equal(t, "1", p.metric("inferencecache_policies_loaded"))
	loaded := p.metric("inferencecache_policy_reload_last_success_timestamp_seconds")
	require.NotEqual(t, "0", loaded)

	writePolicy(t, dir, "{strategy: {requireChains: true}}")
	p.waitLog("policies not reloaded")
	require.Equal(t, "POLICY_REQUIRES_CHAIN", p.ask(exact))
	require.Equal(t, "1", p.metric("inferencecache_policy_reload_failures_total"))
	require.Equal(t, loaded, p.metric("inferencecache_policy_reload_last_success_timestamp_seconds"))

	// As at the start: what the index forgets before its policy says is no policy.
	writePolicy(t, dir, "{evictionTTL: 48h}")
	require.Eventually(t, func() bool { return p.metric("inferencecache_policy_reload_failures_total") == "2" }, generous, 10*time.Millisecond)
	require.Equal(t, "POLICY_REQUIRES_CHAIN", p.ask(exact))

	writePolicy(t, dir, "{evictionTTL: 23h}")
	require.Eventually(t, func() bool { return p.ask(exact) == "NO_HINT" }, generous, 10*time.Millisecond)
	require.Equal(t, "1", p.metric("inferencecache_policy_reloads_total"))
	p.waitLog("policies reloaded: they are good again")

	// A directory that comes back is found soon, though nothing says that it did.
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.Eventually(t, func() bool { return p.metric("inferencecache_policy_reload_failures_total") == "3" }, generous, 10*time.Millisecond)
	require.Equal(t, "NO_HINT", p.ask(exact))
	require.NoError(t, os.Rename(dir+".away", dir))
	require.Eventually(t, func() bool { return p.metric("inferencecache_policy_reloads_total") == "2" }, generous, 10*time.Millisecond)
}

func TestASweepDropsWhatThePolicyLetsExpireAndCountsIt(t *testing.T) {
	dir := t.TempDir()
	writePolicy(t, dir, "{evictionTTL: 200ms, eviction: LFU}")
	p := launch(t, "--policy-dir", dir, "--sweep-interval", "200ms")
	p.waitReady()
	require.NoError(t, p.report("t", "r1", "a", "b", "c"))
	require.NoError(t, p.report("stays", "r1", "a"))
	require.Eventually(t, func() bool {
		return p.metric(`inferencecache_index_evictions_total{algorithm="LFU",reason="expired"}`) == "3"
	}, generous, 20*time.Millisecond)
	require.Equal(t, "3", p.metric(`inferencecache_tenant_evictions_total{reason="expired",tenant_id="t"}`))
	require.Eventually(t, func() bool { return p.metric(`inferencecache_index_entries{model="m"}`) == "1" }, generous, 20*time.Millisecond)
	require.Equal(t, "UNKNOWN_TENANT", p.ask(lookup("t", "a")))
	require.Equal(t, "PREFIX_MATCH", p.ask(lookup("stays", "a")))
}
