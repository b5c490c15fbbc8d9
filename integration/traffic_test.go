package integration_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// traffic is lookups that go on while something breaks. None may fail.
type traffic struct {
	t      *testing.T
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	reasons map[string]int
	failed  error
}

// lookups asks for the same chain over and over until stop.
func lookups(t *testing.T, c pb.InferenceCacheClient, tenant string, hashes [][]byte) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	tr := &traffic{t: t, cancel: cancel, reasons: map[string]int{}}
	for range 4 {
		tr.done.Go(func() {
			for ctx.Err() == nil {
				r, err := lookup(ctx, c, tenant, hashes)
				tr.mu.Lock()
				if err == nil {
					tr.reasons[r.GetReasonCode()]++
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
	tr.t.Log("lookups by reason:", tr.reasons)
	return tr.reasons
}
