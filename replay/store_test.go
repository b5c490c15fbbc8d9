package replay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/store/embedded"
)

// newStore is the real index, on the embedded server.
func newStore(t *testing.T) *store.Store {
	t.Helper()
	server, err := embedded.Start(embedded.Options{})
	require.NoError(t, err)
	client, err := store.Dial(store.DialOptions{URL: server.URL()})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	})
	s, err := store.Open(t.Context(), store.Options{Redis: client})
	require.NoError(t, err)
	return s
}

func TestTheStoreGivesTheSameHintsAsTheModel(t *testing.T) {
	trace, o := sample(t, 120), testOptions()
	index := newStore(t)
	got, err := Run(t.Context(), servePod(t, index), trace, o)
	require.NoError(t, err)
	want, err := Run(t.Context(), servePod(t, newModel()), trace, o)
	require.NoError(t, err)
	require.Equal(t, timeless(want), timeless(got))
	requireIndexHoldsWhatTheEnginesHold(t, index, trace, &o, got)
}
