package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// TestASidecarWritesToAPodsEmbeddedStore is what the printed address is for.
func TestASidecarWritesToAPodsEmbeddedStore(t *testing.T) {
	t.Parallel()
	p := pod.Start(t)
	require.NotEmpty(t, p.EmbeddedURL)
	rdb, err := store.Dial(store.DialOptions{URL: p.EmbeddedURL})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	sidecar, err := store.Open(t.Context(), store.Options{Redis: rdb})
	require.NoError(t, err)

	hashes := chain(1, 20)
	r := &ranking.Report{Scope: ranking.Scope{Tenant: "tenant", Model: model}, Replica: "r1", Scheme: scheme}
	for i, h := range hashes {
		r.Entries = append(r.Entries, ranking.Entry{Hash: h, Tokens: int32(16 * (i + 1)), Tier: ranking.TierT1})
	}
	require.NoError(t, sidecar.Report(t.Context(), r))
	require.NoError(t, answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r1")())

	require.NoError(t, report(t.Context(), p.Client, "tenant", "r2", hashes[:5]))
	state, err := sidecar.State(t.Context(), r.Scope)
	require.NoError(t, err)
	require.EqualValues(t, 20, state.Prefixes)
	require.Len(t, state.Replicas, 1, "only r2 reported stats")
}
