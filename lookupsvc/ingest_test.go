package lookupsvc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// brokenIndex fails every write after the first few, and every read.
type brokenIndex struct {
	Index
	taken int
}

var errGone = errors.New("redis is gone: connection refused")

func (b *brokenIndex) Report(_ context.Context, rs ...*ranking.Report) error {
	if b.taken -= len(rs); b.taken < 0 {
		return errGone
	}
	return nil
}
func (*brokenIndex) Publish(context.Context, *ranking.Event) error { return errGone }
func (*brokenIndex) State(context.Context, ranking.Scope) (ranking.State, error) {
	return ranking.State{}, errGone
}

func TestAStreamIsAcknowledgedOnceAfterItsEnd(t *testing.T) {
	r := newRig(t)
	c := dial(t, r.Service)
	ack, err := send(t, c,
		prefixes(&pb.PrefixEntry{BlockHashes: [][]byte{[]byte("a"), []byte("b")}, BlockTokenCounts: []int32{64, 64}}),
		update(func(u *pb.CacheStateUpdate) { u.Stats = &pb.ReplicaStats{HitRate: 0.5, Pressure: 0.25} }),
		prefixes(&pb.PrefixEntry{BlockHashes: [][]byte{{1}}}), // unequal: dropped, and the stream goes on
		prefixes(&pb.PrefixEntry{PrefixHash: []byte("p"), TokenCount: 100}),
	)
	require.NoError(t, err)
	require.True(t, ack.GetAccepted())
	require.Empty(t, ack.GetReasonCode())

	state, err := c.GetCacheState(context.Background(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
	require.NoError(t, err)
	require.EqualValues(t, 3, state.GetSummary().GetTotalPrefixes())
	require.Len(t, state.GetReplicas(), 1)
	require.Equal(t, "r", state.GetReplicas()[0].GetReplicaId())
	require.InDelta(t, 0.25, state.GetReplicas()[0].GetPressure(), 1e-9)
	require.Equal(t, 3, r.value("inferencecache_ingest_updates_total", nil))
	require.Equal(t, 3, r.value("inferencecache_ingest_blocks_total", nil))
	require.Equal(t, 1, r.value("inferencecache_ingest_dropped_total", prometheus.Labels{"reason": "unequal_arrays"}))

	ack, err = send(t, c)
	require.NoError(t, err, "an empty stream")
	require.True(t, ack.GetAccepted())
}

func TestWhatTheIndexDoesNotTakeIsUnavailableWithItsReason(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Index = &brokenIndex{Index: o.Index, taken: 1} })
	c := dial(t, r.Service)
	u := prefixes(&pb.PrefixEntry{PrefixHash: []byte("p"), TokenCount: 100})
	_, err := send(t, c, u, u)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "connection refused")
	_, err = c.PublishEvent(context.Background(), &pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, TenantId: "t", ModelId: "m", ReplicaId: "r"})
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "connection refused")
	_, err = c.GetCacheState(context.Background(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
	require.Equal(t, codes.Unavailable, status.Code(err))
	for _, rpc := range []string{"ReportCacheState", "PublishEvent", "GetCacheState"} {
		require.Equal(t, 1, r.value("inferencecache_ingest_errors_total", prometheus.Labels{"rpc": rpc}), rpc)
	}
}

func TestEventsMapToWhatTheyChange(t *testing.T) {
	r := newRig(t)
	c := dial(t, r.Service)
	publish := func(e *pb.CacheEvent) {
		if e.TenantId == "" {
			e.TenantId = "t"
		}
		e.ModelId, e.ReplicaId = "m", "r1"
		ack, err := c.PublishEvent(context.Background(), e)
		require.NoError(t, err)
		require.True(t, ack.GetAccepted())
	}
	total := func() int64 {
		state, err := c.GetCacheState(context.Background(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
		require.NoError(t, err)
		return state.GetSummary().GetTotalPrefixes()
	}
	r.holds("r1", "a", "b", "c")
	publish(&pb.CacheEvent{Type: pb.CacheEvent_PREFIX_ADDED, PrefixHash: []byte("z")})
	publish(&pb.CacheEvent{Type: pb.CacheEvent_REPLICA_UPDATED})
	publish(&pb.CacheEvent{Type: 77, PrefixHash: []byte("a")})
	publish(&pb.CacheEvent{})
	publish(&pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, TenantId: ReservedTenant})
	publish(&pb.CacheEvent{Type: pb.CacheEvent_PREFIX_EVICTED, PrefixHash: []byte("a"), AdapterId: "another"})
	require.EqualValues(t, 3, total())
	publish(&pb.CacheEvent{Type: pb.CacheEvent_PREFIX_EVICTED, PrefixHash: []byte("a")})
	require.EqualValues(t, 2, total())
	publish(&pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED})
	require.Zero(t, total())

	require.Equal(t, 2, r.value("inferencecache_ingest_dropped_total", prometheus.Labels{"reason": "unknown_event_type"}))
	require.Equal(t, 1, r.value("inferencecache_ingest_dropped_total", prometheus.Labels{"reason": "reserved_tenant"}))
	require.Equal(t, 2, r.value("inferencecache_ingest_events_total", prometheus.Labels{"type": "PREFIX_EVICTED"}))
	require.Equal(t, 1, r.value("inferencecache_ingest_events_total", prometheus.Labels{"type": "ALL_CLEARED"}))
}

func TestEventsBeyondALimitAreDroppedAndAccepted(t *testing.T) {
	long := strings.Repeat("n", 513)
	good := func() *pb.CacheEvent {
		return &pb.CacheEvent{Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: "t", ModelId: "m", ReplicaId: "r", PrefixHash: []byte("a")}
	}
	for name, c := range map[string]struct {
		change func(*pb.CacheEvent)
		reason string
	}{
		"tenant":     {func(e *pb.CacheEvent) { e.TenantId = long }, "name_too_long"},
		"model":      {func(e *pb.CacheEvent) { e.ModelId = long }, "name_too_long"},
		"replica":    {func(e *pb.CacheEvent) { e.ReplicaId = long }, "name_too_long"},
		"adapter":    {func(e *pb.CacheEvent) { e.AdapterId = long }, "name_too_long"},
		"no tenant":  {func(e *pb.CacheEvent) { e.TenantId = "" }, "empty_name"},
		"no model":   {func(e *pb.CacheEvent) { e.ModelId = "" }, "empty_name"},
		"no replica": {func(e *pb.CacheEvent) { e.ReplicaId = "" }, "empty_name"},
		"hash":       {func(e *pb.CacheEvent) { e.PrefixHash = make([]byte, 129) }, "hash_too_long"},
	} {
		r := newRig(t, func(o *Options) { o.Index = &brokenIndex{Index: o.Index} })
		e := good()
		c.change(e)
		ack, err := r.PublishEvent(context.Background(), e)
		require.NoError(t, err, name)
		require.True(t, ack.GetAccepted(), name)
		require.Equal(t, 1, r.value("inferencecache_ingest_dropped_total", prometheus.Labels{"reason": c.reason}), name)
	}
}

func TestStateOfWhatCannotExistIsEmpty(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Index = &brokenIndex{Index: o.Index} })
	for _, req := range []*pb.GetCacheStateRequest{
		{TenantId: ReservedTenant, ModelId: "m"}, {TenantId: "t"}, {ModelId: "m"}, {},
		{TenantId: strings.Repeat("n", 513), ModelId: "m"},
	} {
		resp, err := r.GetCacheState(context.Background(), req)
		require.NoError(t, err)
		require.Empty(t, resp.GetReplicas())
		require.Zero(t, resp.GetSummary().GetTotalPrefixes())
	}
}

func TestReservedRPCsAnswerAsTheReferenceSays(t *testing.T) {
	c := dial(t, newRig(t).Service)
	ctx := context.Background()
	pd, err := c.LookupPDRoute(ctx, &pb.LookupPDRouteRequest{TenantId: "t"})
	require.NoError(t, err)
	require.Equal(t, "NO_HINT", pd.GetReasonCode())
	require.Empty(t, pd.GetPrefillReplicaId()+pd.GetDecodeReplicaId()+pd.GetTransportHint())
	tpl, err := c.RenderTemplate(ctx, &pb.RenderTemplateRequest{TemplateRef: "x"})
	require.NoError(t, err)
	require.Equal(t, "OK", tpl.GetReasonCode())
	require.Empty(t, tpl.GetRenderedPrompt())
	events, err := c.StreamCacheEvents(ctx, &pb.StreamEventsRequest{})
	require.NoError(t, err)
	_, err = events.Recv()
	require.Equal(t, codes.Unimplemented, status.Code(err))
	metrics, err := c.StreamMetrics(ctx, &pb.StreamMetricsRequest{})
	require.NoError(t, err)
	_, err = metrics.Recv()
	require.Equal(t, codes.Unimplemented, status.Code(err))
}

// panicIndex breaks in every method.
type panicIndex struct{ Index }

func (panicIndex) Report(context.Context, ...*ranking.Report) error { panic("broken") }
func (panicIndex) State(context.Context, ranking.Scope) (ranking.State, error) {
	panic("broken")
}

func TestAPanicInAHandlerEndsTheCallAndNothingElse(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Index = panicIndex{o.Index} })
	c := dial(t, r.Service)
	_, err := send(t, c, prefixes(&pb.PrefixEntry{PrefixHash: []byte("p")}))
	require.Equal(t, codes.Internal, status.Code(err))
	_, err = c.GetCacheState(context.Background(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
	require.Equal(t, codes.Internal, status.Code(err))
	require.NotContains(t, err.Error(), "broken", "internals stay in the log")
	require.Equal(t, 2, r.value("inferencecache_panics_total", nil))
	_, err = c.LookupRoute(context.Background(), &pb.LookupRouteRequest{})
	require.NoError(t, err)
}

// busyIndex takes its time over the first call, and notes what each call brought.
type busyIndex struct {
	Index
	first chan struct{} // closed when the first call may return
	mu    sync.Mutex
	calls [][]string // the replicas of each call's reports
}

func (b *busyIndex) Report(_ context.Context, rs ...*ranking.Report) error {
	b.mu.Lock()
	var call []string
	for _, r := range rs {
		call = append(call, r.Replica+" "+string(r.Entries[0].Hash))
	}
	b.calls = append(b.calls, call)
	n := len(b.calls)
	b.mu.Unlock()
	if n == 1 {
		<-b.first
	}
	return nil
}

func TestUpdatesThatWaitForABusyIndexAreTakenTogetherAndInOrder(t *testing.T) {
	busy := &busyIndex{first: make(chan struct{})}
	r := newRig(t, func(o *Options) { busy.Index, o.Index = o.Index, busy })
	stream, err := dial(t, r.Service).ReportCacheState(context.Background())
	require.NoError(t, err)
	const updates = 200
	var want []string
	for i := range updates {
		hash := fmt.Sprint("block ", i)
		want = append(want, "r "+hash)
		u := &pb.CacheStateUpdate{TenantId: "t", ModelId: "m", ReplicaId: "r", HashScheme: "s",
			Prefixes: []*pb.PrefixEntry{{PrefixHash: []byte(hash), TokenCount: 16}}}
		require.NoError(t, stream.Send(u))
		if i == 20 { // an update that is dropped takes nobody's place
			require.NoError(t, stream.Send(&pb.CacheStateUpdate{TenantId: "t", ModelId: "m"}))
		}
	}
	close(busy.first)
	ack, err := stream.CloseAndRecv()
	require.NoError(t, err)
	require.True(t, ack.GetAccepted())
	var got []string
	for _, call := range busy.calls {
		require.LessOrEqual(t, len(call), maxTogether)
		got = append(got, call...)
	}
	require.Equal(t, want, got)
	require.Less(t, len(busy.calls), updates/4)
	require.Equal(t, updates, r.value("inferencecache_ingest_updates_total", nil))
}

// Who sends what cannot be taken is what an operator needs to know.
func TestWhatIsDroppedNamesItsProducer(t *testing.T) {
	r := newRig(t)
	c := dial(t, r.Service)
	_, err := send(t, c,
		prefixes(&pb.PrefixEntry{PrefixHash: []byte("fine"), TokenCount: 1}),
		update(func(u *pb.CacheStateUpdate) {
			u.TenantId, u.ModelId, u.ReplicaId = "tenant-7", "model-7", "replica-7"
			u.Prefixes = []*pb.PrefixEntry{{BlockHashes: [][]byte{{1}}}}
		}))
	require.NoError(t, err)
	_, err = c.PublishEvent(context.Background(), &pb.CacheEvent{Type: 77, TenantId: "tenant-8", ModelId: "model-8", ReplicaId: "replica-8"})
	require.NoError(t, err)
	for _, want := range []string{"tenant=tenant-7", "model=model-7", "replica=replica-7", "peer=", "reason=unequal_arrays",
		"tenant=tenant-8", "model=model-8", "replica=replica-8", "reason=unknown_event_type"} {
		require.Contains(t, r.log.String(), want)
	}
	require.NotContains(t, r.log.String(), `peer=""`)
}

func TestStatsOutOfRangeAreKeptAndTold(t *testing.T) {
	r := newRig(t)
	c := dial(t, r.Service)
	stats := func(hitRate, pressure float32) *pb.CacheStateUpdate {
		return update(func(u *pb.CacheStateUpdate) {
			u.ReplicaId = "replica-7"
			u.Stats = &pb.ReplicaStats{HitRate: hitRate, Pressure: pressure}
		})
	}
	_, err := send(t, c, stats(1, 1), stats(0, 0))
	require.NoError(t, err)
	require.NotContains(t, r.log.String(), "out of range")
	u := stats(7, -2)
	_, err = send(t, c, u)
	require.NoError(t, err)
	require.Contains(t, r.log.String(), "stats out of range: kept as reported")
	require.Contains(t, r.log.String(), "replica=replica-7")
	state, err := c.GetCacheState(context.Background(), &pb.GetCacheStateRequest{TenantId: u.GetTenantId(), ModelId: u.GetModelId()})
	require.NoError(t, err)
	require.InDelta(t, 7, state.GetReplicas()[0].GetHitRate(), 0)
	require.InDelta(t, -2, state.GetReplicas()[0].GetPressure(), 0)
}
