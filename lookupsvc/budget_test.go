package lookupsvc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// matchIndex is an index whose Match is the given function, on top of another.
type matchIndex struct {
	Index
	match func(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error
}

func (m matchIndex) Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	return m.match(ctx, q, ev)
}

func matching(f func(context.Context, *ranking.Query, *ranking.Evidence) error) func(*Options) {
	return func(o *Options) { o.Index = matchIndex{o.Index, f} }
}

func within(d time.Duration) func(*Options) { return func(o *Options) { o.LookupTimeout = d } }

func TestALookupReturnsAtItsBudgetThoughTheIndexHangs(t *testing.T) {
	release := make(chan struct{})
	finished := make(chan struct{}, 8)
	r := newRig(t, within(20*time.Millisecond), matching(func(_ context.Context, _ *ranking.Query, ev *ranking.Evidence) error {
		<-release // deaf to its context
		ev.NowMS = 1
		finished <- struct{}{}
		return nil
	}))
	for range 3 {
		req := chain("a")
		req.AdapterId = "lora"
		resp := r.ask(req)
		require.Equal(t, "TIMEOUT", resp.GetReasonCode())
		require.Empty(t, resp.GetReplicaScores())
		require.Empty(t, resp.GetAdapterId())
		require.GreaterOrEqual(t, resp.GetLookupLatencyUs(), int64(20_000))
	}
	require.Equal(t, 3, r.value("inferencecache_lookup_abandoned_calls", nil))
	require.Equal(t, 3, r.value("inferencecache_lookup_route_calls_total", prometheus.Labels{"reason_code": "TIMEOUT", "hint_used": "false"}))
	close(release)
	for range 3 {
		<-finished
	}
	require.Eventually(t, func() bool { return r.left.Load() == 0 }, 10*time.Second, time.Millisecond)
}

func TestAnIndexThatHonoursItsContextLeavesNothingBehind(t *testing.T) {
	r := newRig(t, within(10*time.Millisecond), matching(func(ctx context.Context, _ *ranking.Query, _ *ranking.Evidence) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	require.Equal(t, "TIMEOUT", r.ask(chain("a")).GetReasonCode())
	require.Eventually(t, func() bool { return r.left.Load() == 0 }, 10*time.Second, time.Millisecond)
	require.Zero(t, r.value("inferencecache_lookup_errors_total", nil), "the end of a budget is no error")
}

func TestTheTightestBoundWins(t *testing.T) {
	for name, c := range map[string]struct {
		server, policy, caller time.Duration
		want                   time.Duration
	}{
		"server":               {server: 5 * time.Second, policy: 10 * time.Second, caller: time.Minute, want: 5 * time.Second},
		"policy":               {server: 10 * time.Second, policy: 5 * time.Second, caller: time.Minute, want: 5 * time.Second},
		"caller":               {server: 10 * time.Second, policy: time.Minute, caller: 5 * time.Second, want: 5 * time.Second},
		"a policy without one": {server: 5 * time.Second, want: 5 * time.Second},
	} {
		var got time.Duration
		r := newRig(t, within(c.server), matching(func(ctx context.Context, _ *ranking.Query, _ *ranking.Evidence) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			got = time.Until(deadline)
			return nil
		}))
		r.setPolicy("t", func(p *ranking.Policy) { p.LookupTimeout = c.policy })
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if c.caller > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.caller)
		}
		r.askCtx(ctx, chain("a"))
		cancel()
		require.LessOrEqual(t, got, c.want, name)
		require.Greater(t, got, c.want-4*time.Second, name)
	}
}

func TestABudgetThatIsSpentOnArrivalIsTimeout(t *testing.T) {
	r := newRig(t, matching(func(context.Context, *ranking.Query, *ranking.Evidence) error {
		t.Error("the index was asked")
		return nil
	}))
	past, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	require.Equal(t, "TIMEOUT", r.askCtx(past, chain("a")).GetReasonCode())
	gone, leave := context.WithCancel(context.Background())
	leave()
	require.Equal(t, "TIMEOUT", r.askCtx(gone, chain("a")).GetReasonCode())
	r.setPolicy("t", func(p *ranking.Policy) { p.RequireChain = true })
	require.Equal(t, "TIMEOUT", r.askCtx(gone, exact("a", 1)).GetReasonCode(), "before requireChain")
}

func TestAnAnswerThatComesTooLateIsTimeout(t *testing.T) {
	r := newRig(t, within(10*time.Millisecond), matching(func(ctx context.Context, _ *ranking.Query, ev *ranking.Evidence) error {
		<-ctx.Done()
		ev.Serving = []ranking.Replica{{ID: "r1"}}
		return nil
	}))
	resp := r.ask(chain("a"))
	require.Equal(t, "TIMEOUT", resp.GetReasonCode())
	require.Empty(t, resp.GetReplicaScores())
	require.Eventually(t, func() bool { return r.left.Load() == 0 }, 10*time.Second, time.Millisecond)
}

func TestAFailingIndexIsNoHint(t *testing.T) {
	r := newRig(t, matching(func(context.Context, *ranking.Query, *ranking.Evidence) error {
		return errors.New("connection refused")
	}))
	req := chain("a")
	req.AdapterId = "lora"
	resp := r.ask(req)
	require.Equal(t, "NO_HINT", resp.GetReasonCode())
	require.Equal(t, "lora", resp.GetAdapterId(), "the index was consulted")
	require.Equal(t, 1, r.value("inferencecache_lookup_errors_total", prometheus.Labels{"reason": "index"}))
	require.Contains(t, r.log.String(), "connection refused")
}

func TestAPanicIsNoHint(t *testing.T) {
	inIndex := newRig(t, matching(func(context.Context, *ranking.Query, *ranking.Evidence) error { panic("index broke") }))
	require.Equal(t, "NO_HINT", inIndex.ask(chain("a")).GetReasonCode())
	inPolicy := newRig(t, func(o *Options) { o.Policy = func(string) *ranking.Policy { panic("policy broke") } })
	require.Equal(t, "NO_HINT", inPolicy.ask(chain("a")).GetReasonCode())
	for _, r := range []*rig{inIndex, inPolicy} {
		require.Equal(t, 1, r.value("inferencecache_lookup_errors_total", prometheus.Labels{"reason": "panic"}))
		require.Equal(t, 1, r.value("inferencecache_panics_total", nil))
		require.Equal(t, 1, r.value("inferencecache_lookup_route_calls_total", prometheus.Labels{"reason_code": "NO_HINT"}))
		require.Contains(t, r.log.String(), "broke")
		require.Contains(t, r.log.String(), "_test.go", "the stack says where")
	}
}

func TestAHangingIndexDoesNotTakeThePodsMemory(t *testing.T) {
	asked := false
	r := newRig(t, matching(func(context.Context, *ranking.Query, *ranking.Evidence) error {
		asked = true
		return nil
	}))
	r.left.Store(maxLeft)
	require.Equal(t, "NO_HINT", r.ask(chain("a")).GetReasonCode())
	require.False(t, asked)
	require.Equal(t, 1, r.value("inferencecache_lookup_errors_total", prometheus.Labels{"reason": "stuck"}))
	r.left.Store(maxLeft - 1)
	r.ask(chain("a"))
	require.True(t, asked)
}

func TestADegradedAnswerIsAnAnswer(t *testing.T) {
	r := newRig(t)
	r.holds("r1", "a")
	r.index = matchIndex{r.index, func(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
		err := r.model.Match(ctx, q, ev)
		ev.Degraded, ev.Cached, ev.Walked = true, ev.Walked, 0
		return err
	}}
	require.Equal(t, "PREFIX_MATCH", r.ask(chain("a")).GetReasonCode())
	require.Equal(t, 1, r.value("inferencecache_lookup_degraded_total", nil))
	require.Equal(t, 1, r.value("inferencecache_lookup_blocks_total", prometheus.Labels{"state": "cached"}))
}
