package integration_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
	"inferencecache.io/lookuptier/store"
)

// TestTheBytesInTheGuideAreTrue holds docs/writing-to-redis.md to what the store does.
func TestTheBytesInTheGuideAreTrue(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/writing-to-redis.md")
	require.NoError(t, err)
	guide := string(raw)
	scope, space := ranking.Scope{Tenant: "acme", Model: "llama"}, ranking.Space{Scheme: "vllm"}
	k := store.KeysOf(scope, 0)
	var tokens []uint32
	for n := range uint32(32) {
		tokens = append(tokens, n+1)
	}
	fps := ranking.AppendFingerprints(nil, nil, tokens, 16)
	first, second := hex.EncodeToString(fps[:8]), hex.EncodeToString(fps[8:])
	for _, want := range []string{
		strings.TrimSuffix(k.Head(), "h") + " ", "b:" + store.SpaceSuffix(space), store.CatalogTenantsKey, store.CatalogTenantKey("acme"), store.CatalogPartitionsKey,
		fmt.Sprintf("% x ", store.SpaceField(space)), "`" + first + "`", "`" + second + "`",
		fmt.Sprintf("08 %s 01 000010  08 %s 01 000020", first, second),
		fmt.Sprint("at most ", scripts.MaxHashes, " in a call"),
	} {
		require.Contains(t, guide, want)
	}
	require.Equal(t, "\x00\x00\x00\x05llama0", store.CatalogMember("llama", 0))
	require.Equal(t, "\x00\x00\x00\x04acme\x00\x00\x00\x05llama0", store.PartitionMember(store.Partition{Scope: scope}))
	for name := range scripts.Texts() {
		if strings.Contains(guide, name+".lua") {
			continue
		}
		require.Contains(t, []string{"head", "catalog_census", "sweep", "sweep_begin", "sweep_end"}, name, "a script that writers need and the guide does not name")
	}
}
