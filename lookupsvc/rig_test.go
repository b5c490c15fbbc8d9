package lookupsvc

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// baseMS is the time at which the model's clock starts.
const baseMS = 1_800_000_000_000

// rig is a Service on the model index, with a clock that only tests move.
type rig struct {
	*Service
	t        testing.TB
	model    *rankingtest.Model
	registry *prometheus.Registry
	policies map[string]*ranking.Policy
	nowMS    int64
	log      *lockedBuffer
}

// newRig starts with a hold of another tenant, so that the index is not globally empty.
func newRig(t testing.TB, change ...func(*Options)) *rig {
	r := &rig{t: t, registry: prometheus.NewPedanticRegistry(), policies: map[string]*ranking.Policy{}, nowMS: baseMS,
		log: &lockedBuffer{}}
	r.model = rankingtest.New(func() int64 { return r.nowMS })
	standard := ranking.DefaultPolicy()
	o := Options{
		Index: r.model,
		Policy: func(tenant string) *ranking.Policy {
			if p := r.policies[tenant]; p != nil {
				return p
			}
			return &standard
		},
		Knobs:   ranking.DefaultKnobs(),
		Metrics: r.registry,
		Log:     slog.New(slog.NewTextHandler(r.log, nil)),
		// Long enough for a machine that is busy with something else.
		LookupTimeout: longTimeout,
	}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	require.NoError(t, err)
	r.Service = s
	require.NoError(t, r.model.Report(context.Background(), &ranking.Report{
		Scope: ranking.Scope{Tenant: "somebody", Model: "else"}, Replica: "r", Scheme: "s",
		Entries: []ranking.Entry{{Hash: []byte("x"), Tokens: 1}},
	}))
	return r
}

// policy gives a tenant a policy that differs from the default in what change sets.
func (r *rig) setPolicy(tenant string, change func(*ranking.Policy)) {
	p := ranking.DefaultPolicy()
	change(&p)
	r.policies[tenant] = &p
}

// holds indexes a hold for each hash, 64 tokens a block, for replica of tenant "t",
// model "m", scheme "s".
func (r *rig) holds(replica string, hashes ...string) {
	rep := &ranking.Report{Scope: ranking.Scope{Tenant: "t", Model: "m"}, Replica: replica, Scheme: "s"}
	for i, h := range hashes {
		rep.Entries = append(rep.Entries, ranking.Entry{Hash: []byte(h), Tokens: int32(64 * (i + 1)), Tier: ranking.TierT1})
	}
	require.NoError(r.t, r.model.Report(context.Background(), rep))
}

// ask looks up req, with tenant "t", model "m" and scheme "s" unless it has its own.
func (r *rig) ask(req *pb.LookupRouteRequest) *pb.LookupRouteResponse {
	r.t.Helper()
	return r.askCtx(context.Background(), req)
}

func (r *rig) askCtx(ctx context.Context, req *pb.LookupRouteRequest) *pb.LookupRouteResponse {
	r.t.Helper()
	if req.TenantId == "" {
		req.TenantId = "t"
	}
	if req.ModelId == "" {
		req.ModelId = "m"
	}
	if req.HashScheme == "" {
		req.HashScheme = "s"
	}
	resp, err := r.LookupRoute(ctx, req)
	require.NoError(r.t, err)
	return resp
}

// chain names blocks of 64 tokens each.
func chain(hashes ...string) *pb.LookupRouteRequest {
	req := &pb.LookupRouteRequest{}
	for _, h := range hashes {
		req.BlockHashes = append(req.BlockHashes, []byte(h))
		req.BlockTokenCounts = append(req.BlockTokenCounts, 64)
	}
	return req
}

func exact(hash string, tokens int32) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{PrefixHash: []byte(hash), PrefixTokenCount: tokens}
}

// value sums the series of a counter or gauge whose labels include want.
func (r *rig) value(name string, want prometheus.Labels) int {
	r.t.Helper()
	return seriesValue(r.t, r.registry, name, want)
}

func seriesValue(t testing.TB, g prometheus.Gatherer, name string, want prometheus.Labels) int {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if includes(m.GetLabel(), want) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return int(sum)
}

func includes(pairs []*dto.LabelPair, want prometheus.Labels) bool {
	n := 0
	for _, p := range pairs {
		if v, ok := want[p.GetName()]; ok && v == p.GetValue() {
			n++
		}
	}
	return n == len(want)
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func randomIDs(n int) []uint32 {
	rnd := rand.New(rand.NewPCG(1, 2))
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = rnd.Uint32N(50_000)
	}
	return ids
}
