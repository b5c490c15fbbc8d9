package integration_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// traffic is lookups that go on while something breaks. None may fail, and each gets a
// reason that the contract knows. How long they took is told and not judged: the
// machine may be busy.
type traffic struct {
	t      *testing.T
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	reasons map[string]int
	took    []time.Duration
	failed  error
}

var legalReasons = []string{"PREFIX_MATCH", "TENANT_HOT", "AFFINITY_HINT", "NO_HINT", "POLICY_REQUIRES_CHAIN",
	"TIMEOUT", "UNKNOWN_TENANT", "UNKNOWN_MODEL", "UNKNOWN_HASH_SCHEME"}

// lookups asks for the same chain over and over until stop.
func lookups(t *testing.T, c pb.InferenceCacheClient, tenant string, hashes [][]byte) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	tr := &traffic{t: t, cancel: cancel, reasons: map[string]int{}}
	for range 4 {
		tr.done.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				r, err := lookup(ctx, c, tenant, hashes)
				took := time.Since(began)
				tr.mu.Lock()
				if err == nil {
					tr.reasons[r.GetReasonCode()]++
					tr.took = append(tr.took, took)
				} else if ctx.Err() == nil && tr.failed == nil {
					tr.failed = err
				}
				tr.mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Cleanup(func() { cancel(); tr.done.Wait() })
	return tr
}

// stop ends the traffic, wants no lookup to have failed, and returns how often
// each reason was given.
func (tr *traffic) stop() map[string]int {
	tr.t.Helper()
	tr.cancel()
	tr.done.Wait()
	require.NoError(tr.t, tr.failed, "a lookup failed; it must fail open")
	require.NotEmpty(tr.t, tr.reasons)
	for reason := range tr.reasons {
		require.Contains(tr.t, legalReasons, reason)
	}
	slices.Sort(tr.took)
	at := func(q float64) time.Duration {
		return tr.took[int(q*float64(len(tr.took)-1))].Round(10 * time.Microsecond)
	}
	tr.t.Logf("lookups by reason: %v; p50 %v, p99 %v, slowest %v with a budget of 100ms", tr.reasons, at(.5), at(.99), at(1))
	return tr.reasons
}
