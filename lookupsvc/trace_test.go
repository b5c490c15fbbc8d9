package lookupsvc

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// diary is a Tracer and the trace of every lookup; it writes down what it hears.
type diary struct {
	lines []string
	keeps string
}

func (d *diary) Lookup(context.Context) LookupTrace { return d }

func (d *diary) say(format string, a ...any)  { d.lines = append(d.lines, fmt.Sprintf(format, a...)) }
func (d *diary) Names(model, policy string)   { d.say("names %s %s", model, policy) }
func (d *diary) Found(ev *ranking.Evidence)   { d.say("found %d", ev.Asked) }
func (d *diary) Ranked(_, _ time.Time, n int) { d.say("ranked %d", n) }
func (d *diary) ID() string                   { return d.keeps }
func (d *diary) Input(start, end time.Time, input, rejected string) {
	if end.Before(start) {
		d.say("input ends before it began")
	}
	d.say("input %s %q", input, rejected)
}
func (d *diary) Answered(reason ranking.Reason, replicas int, matched int32) {
	d.say("answered %s %d %d", reason, replicas, matched)
}

func TestATraceHearsTheStagesOfALookup(t *testing.T) {
	d := &diary{}
	r := newRig(t, func(o *Options) { o.Tracer = d })
	r.holds("r1", "a", "b")
	r.setPolicy("own", func(p *ranking.Policy) { p.MinimumPrefixTokens, p.Affinity = 1000, false })
	r.setPolicy("strict", func(p *ranking.Policy) { p.RequireChain = true })
	for _, c := range []struct {
		req  *pb.LookupRouteRequest
		want []string
	}{
		{chain("a", "b"), []string{"names m default", `input chain ""`, "found 2", "ranked 1", "answered PREFIX_MATCH 1 128"}},
		{&pb.LookupRouteRequest{PromptText: "x"}, []string{"names m default", `input prompt_text "no_tokenizer"`, "answered NO_HINT 0 0"}},
		{&pb.LookupRouteRequest{TenantId: "own", PrefixHash: []byte("a")}, []string{"names m own", `input prefix_hash ""`, "answered NO_HINT 0 0"}},
		{&pb.LookupRouteRequest{TenantId: "strict", PrefixHash: []byte("a")}, []string{"names m strict", "answered POLICY_REQUIRES_CHAIN 0 0"}},
		{&pb.LookupRouteRequest{TenantId: ReservedTenant}, []string{"names m default", "answered NO_HINT 0 0"}},
	} {
		d.lines = nil
		r.ask(c.req)
		require.Equal(t, c.want, d.lines)
	}
}

func TestOnlyAKeptTraceIsNamedByTheLatencyHistogram(t *testing.T) {
	for id, want := range map[string]int{"": 0, "0af7651916cd43dd8448eb211c80319c": 1} {
		r := newRig(t, func(o *Options) { o.Tracer = &diary{keeps: id} })
		r.ask(chain("a"))
		families, err := r.registry.Gather()
		require.NoError(t, err)
		exemplars := 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, b := range m.GetHistogram().GetBucket() {
					if b.GetExemplar() != nil {
						require.Equal(t, id, b.GetExemplar().GetLabel()[0].GetValue())
						exemplars++
					}
				}
			}
		}
		require.Equal(t, want, exemplars)
	}
}

// untraced knows of no trace, as a Tracer does for calls that are not kept.
type untraced struct{}

func (untraced) Lookup(context.Context) LookupTrace { return nil }

func TestALookupWithoutATraceAllocatesNothingForOne(t *testing.T) {
	allocs := func(tracer Tracer) float64 {
		s, err := New(Options{Index: &instantIndex{ev: ranking.Evidence{NowMS: baseMS, Asked: 64, Cached: 64,
			Serving: []ranking.Replica{{ID: "r1"}, {ID: "r2"}},
			Runs:    []ranking.Run{{Replica: 0, Tokens: 1024, SeenMS: baseMS, Blocks: 64}}}}, Knobs: ranking.DefaultKnobs(), Tracer: tracer})
		require.NoError(t, err)
		req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s"}
		for i := range 64 {
			req.BlockHashes = append(req.BlockHashes, fmt.Appendf(nil, "%08d", i))
			req.BlockTokenCounts = append(req.BlockTokenCounts, 16)
		}
		// The race detector lets pools drop things at random: the best of several counts.
		best := math.Inf(1)
		for range 5 {
			best = min(best, testing.AllocsPerRun(500, func() { _, _ = s.LookupRoute(context.Background(), req) }))
		}
		return best
	}
	require.InDelta(t, allocs(nil), allocs(untraced{}), 1)
}
