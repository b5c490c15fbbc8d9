package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func printACL(args ...string) (code int, out string) {
	var b bytes.Buffer
	code = run(context.Background(), append([]string{"acl"}, args...), streams{out: &b, err: &b})
	return code, b.String()
}

func TestACLPrintsTheUserOfEachComponent(t *testing.T) {
	code, out := printACL("pod")
	require.Equal(t, exitOK, code)
	require.Equal(t, store.SetUser("lookupd", store.PodACL())+"\n", out)
	code, out = printACL("sidecar", "--tenant", "a", "--model", "m", "--shards", "3", "--user", "engine-7")
	require.Equal(t, exitOK, code)
	require.Equal(t, store.SetUser("engine-7", store.SidecarACL(ranking.Scope{Tenant: "a", Model: "m"}, 3))+"\n", out)
	for _, shard := range []int{0, 1, 2} {
		require.Contains(t, out, "~ic1:{"+store.KeysOf(ranking.Scope{Tenant: "a", Model: "m"}, shard).Tag()+"}:* ")
	}
	for _, args := range [][]string{{"sidecar"}, {"sidecar", "--tenant", "a"}, {"nobody"}, {"pod", "--shards", "0"}} {
		code, out = printACL(args...)
		require.Equal(t, exitUsage, code, "%v: %s", args, out)
	}
}
