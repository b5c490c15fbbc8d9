package auth

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

func TestAFloodOfOneReasonDoesNotHideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		guard := New(func() *Table { return nil }, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		refuse := func(reason string) {
			require.Error(t, guard.refuse(t.Context(), pb.InferenceCache_LookupRoute_FullMethodName, reason, nil, ""))
		}
		lines := func() []string {
			defer log.Reset()
			return strings.Split(strings.TrimSpace(log.String()), "\n")
		}
		for range 100 {
			refuse(reasonUnknown)
		}
		refuse(reasonTenant)
		refuse(reasonMissing)
		got := lines()
		require.Len(t, got, 3, "one of each")
		for i, reason := range []string{reasonUnknown, reasonTenant, reasonMissing} {
			require.Contains(t, got[i], "reason="+reason)
			require.NotContains(t, got[i], "omitted")
		}

		time.Sleep(time.Second)
		refuse(reasonUnknown)
		refuse(reasonTenant)
		got = lines()
		require.Len(t, got, 2)
		require.Contains(t, got[0], "omitted=99")
		require.NotContains(t, got[1], "omitted", "its only line was written")

		time.Sleep(time.Second)
		refuse(reasonUnknown)
		require.NotContains(t, lines()[0], "omitted", "those were told of")
	})
}
