package lookupsvc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// script is a Changes that tells what it is given, and ends with an error if there is one.
type script struct {
	changes []ranking.Change
	err     error
	filter  chan ranking.ChangeFilter
}

func newScript(err error, changes ...ranking.Change) *script {
	return &script{changes: changes, err: err, filter: make(chan ranking.ChangeFilter, MaxStreams+1)}
}

func (x *script) Follow(ctx context.Context, f *ranking.ChangeFilter, started func(), take func(*ranking.Change) error) error {
	x.filter <- *f
	started()
	for i := range x.changes {
		if err := take(&x.changes[i]); err != nil {
			return err
		}
	}
	if x.err != nil {
		return x.err
	}
	<-ctx.Done()
	return nil
}

func streaming(t *testing.T, c Changes) (*rig, pb.InferenceCacheClient) {
	r := newRig(t, func(o *Options) { o.Changes = c })
	return r, dial(t, r.Service)
}

var changesOfT = ranking.Scope{Tenant: "t", Model: "m"}

func TestEachHashOfAChangeIsAnEvent(t *testing.T) {
	_, c := streaming(t, newScript(nil,
		ranking.Change{Kind: ranking.ChangeAdded, Scope: changesOfT, Replica: "r", Adapter: "lora", Hashes: [][]byte{[]byte("a"), []byte("b")}, AtMS: 7},
		ranking.Change{Kind: ranking.ChangeEvicted, Scope: changesOfT, Replica: "r", Hashes: [][]byte{[]byte("a")}, AtMS: 8},
		ranking.Change{Kind: ranking.ChangeUpdated, Scope: changesOfT, Replica: "r", AtMS: 9},
		ranking.Change{Kind: ranking.ChangeCleared, Scope: changesOfT, Replica: "r", AtMS: 10},
	))
	stream, err := c.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{})
	require.NoError(t, err)
	var got []string
	for range 5 {
		e, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, "t/m/r", e.GetTenantId()+"/"+e.GetModelId()+"/"+e.GetReplicaId())
		got = append(got, fmt.Sprint(e.GetType(), " ", string(e.GetPrefixHash()), " ", e.GetAdapterId(), " ", e.GetTimestampUs()))
	}
	require.Equal(t, []string{"PREFIX_ADDED a lora 7000", "PREFIX_ADDED b lora 7000", "PREFIX_EVICTED a  8000",
		"REPLICA_UPDATED   9000", "ALL_CLEARED   10000"}, got)
}

func TestNamesThatAreNoUTF8AreToldAllTheSame(t *testing.T) {
	_, c := streaming(t, newScript(nil, ranking.Change{Kind: ranking.ChangeCleared, Scope: changesOfT, Replica: "r\xff"}))
	stream, err := c.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{})
	require.NoError(t, err)
	e, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "r\uFFFD", e.GetReplicaId())
}

func TestTheFilterReachesTheIndex(t *testing.T) {
	x := newScript(nil)
	_, c := streaming(t, x)
	stream, err := c.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{TenantId: "t", ModelId: "m",
		Types: []pb.CacheEvent_Type{pb.CacheEvent_ALL_CLEARED, pb.CacheEvent_PREFIX_ADDED}})
	require.NoError(t, err)
	_, err = stream.Header()
	require.NoError(t, err, "the header says that the stream has begun")
	require.Equal(t, ranking.ChangeFilter{Scope: changesOfT, Kinds: []ranking.ChangeKind{ranking.ChangeCleared, ranking.ChangeAdded}}, <-x.filter)
}

func TestAFilterThatMakesNoSenseIsRefused(t *testing.T) {
	_, c := streaming(t, newScript(nil))
	for _, req := range []*pb.StreamEventsRequest{
		{Types: []pb.CacheEvent_Type{0}}, {Types: []pb.CacheEvent_Type{99}}, {TenantId: string(make([]byte, MaxNameBytes+1))},
	} {
		stream, err := c.StreamCacheEvents(t.Context(), req)
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	}
}

func TestTheReservedTenantNeverShows(t *testing.T) {
	_, c := streaming(t, newScript(errors.New("end"),
		ranking.Change{Kind: ranking.ChangeUpdated, Scope: ranking.Scope{Tenant: ReservedTenant, Model: "m"}, Replica: "probe"}))
	for _, tenant := range []string{"", ReservedTenant} {
		stream, err := c.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{TenantId: tenant})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	}
}

func TestHowAStreamEndsTellsWhy(t *testing.T) {
	for _, end := range []struct {
		err    error
		code   codes.Code
		reason string
	}{
		{errors.New("Redis is away"), codes.Unavailable, cutIndex},
		{fmt.Errorf("%w: the log moved on", ranking.ErrChangesMissed), codes.DataLoss, cutMissed},
	} {
		r, c := streaming(t, newScript(end.err))
		stream, err := c.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, end.code, status.Code(err))
		require.ErrorContains(t, err, end.err.Error())
		require.Equal(t, 1, r.value("inferencecache_streams_cut_total", prometheus.Labels{"reason": end.reason}))
	}
}

// endlessly tells changes as fast as they are taken.
type endlessly struct{ ended chan error }

func (x *endlessly) Follow(_ context.Context, _ *ranking.ChangeFilter, started func(), take func(*ranking.Change) error) error {
	started()
	c := ranking.Change{Kind: ranking.ChangeAdded, Scope: changesOfT, Replica: "r"}
	for range 500 {
		c.Hashes = append(c.Hashes, make([]byte, 32))
	}
	for {
		if err := take(&c); err != nil {
			x.ended <- err
			return err
		}
	}
}

func TestAConsumerThatDoesNotReadIsToldAndDropped(t *testing.T) {
	x := &endlessly{ended: make(chan error, 1)}
	r, c := streaming(t, x)
	r.streams.slow = 200 * time.Millisecond
	stream, err := c.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{})
	require.NoError(t, err)
	require.ErrorIs(t, <-x.ended, errSlow, "without a single Recv")
	require.Eventually(t, func() bool { return r.value("inferencecache_streams_open", nil) == 0 }, time.Minute, time.Millisecond,
		"the place is free though the consumer still does not read")
	for err == nil { // what was on its way, then the reason
		_, err = stream.Recv()
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "was not read")
	require.Equal(t, 1, r.value("inferencecache_streams_cut_total", prometheus.Labels{"reason": cutSlow}))
}

func TestAConsumerThatGoesEndsTheFollower(t *testing.T) {
	x := &endlessly{ended: make(chan error, 1)}
	r, c := streaming(t, x)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := c.StreamCacheEvents(ctx, &pb.StreamEventsRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-x.ended, context.Canceled)
	require.Zero(t, r.value("inferencecache_streams_cut_total", nil))
}

func TestAPodTakesOnlySoManyStreams(t *testing.T) {
	r, c := streaming(t, newScript(nil))
	ctx, cancel := context.WithCancel(t.Context())
	for range MaxStreams {
		stream, err := c.StreamCacheEvents(ctx, &pb.StreamEventsRequest{})
		require.NoError(t, err)
		_, err = stream.Header()
		require.NoError(t, err)
	}
	stream, err := c.StreamCacheEvents(t.Context(), &pb.StreamEventsRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	cancel()
	require.Eventually(t, func() bool { return r.value("inferencecache_streams_open", nil) == 0 }, time.Minute, time.Millisecond)
}

func TestMetricsAreStreamedAtOnceAndAgain(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, func(o *Options) { o.Metrics, o.Gatherer = reg, reg })
	r.streams.every = 10 * time.Millisecond
	c := dial(t, r.Service)
	r.ask(chain("a"))
	stream, err := c.StreamMetrics(t.Context(), &pb.StreamMetricsRequest{Names: []string{
		"inferencecache_lookup_degraded_total", "inferencecache_lookup_route_latency_seconds_count", "no_such_metric"}})
	require.NoError(t, err)
	for range 3 { // rounds
		var seen []string
		for len(seen) < 3 {
			m, err := stream.Recv()
			require.NoError(t, err)
			require.Positive(t, m.GetTimestampUs())
			seen = append(seen, fmt.Sprint(m.GetName(), m.GetLabels(), " ", m.GetType(), " ", m.GetValue()))
		}
		require.Equal(t, []string{
			"inferencecache_lookup_degraded_totalmap[] counter 0",
			"inferencecache_lookup_route_latency_seconds_countmap[model:m] histogram 1",
			"inferencecache_lookup_route_latency_seconds_countmap[model:other] histogram 0",
		}, seen)
	}
}

func TestAHistogramsNameStandsForAllItsParts(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, func(o *Options) { o.Metrics, o.Gatherer = reg, reg })
	r.ask(chain("a"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := dial(t, r.Service).StreamMetrics(ctx, &pb.StreamMetricsRequest{Names: []string{"inferencecache_lookup_route_latency_seconds"}})
	require.NoError(t, err)
	parts := map[string]int{}
	for range 2 * (11 + 2) { // two models, ten bounds and +Inf, sum and count
		m, err := stream.Recv()
		require.NoError(t, err)
		if m.GetLabels()["model"] == "m" && m.GetLabels()["le"] == "+Inf" {
			require.EqualValues(t, 1, m.GetValue())
		}
		parts[m.GetName()]++
	}
	require.Equal(t, map[string]int{"inferencecache_lookup_route_latency_seconds_bucket": 22,
		"inferencecache_lookup_route_latency_seconds_sum": 2, "inferencecache_lookup_route_latency_seconds_count": 2}, parts)
}

func TestALookupThatIsNoProtobufIsCounted(t *testing.T) {
	r := newRig(t)
	_, err := handleLookupRoute(r.Service, t.Context(), func(any) error { return io.ErrUnexpectedEOF }, nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, 1, r.value("inferencecache_lookup_rejected_total", prometheus.Labels{"reason": "undecodable"}))
	require.Contains(t, r.log.String(), "it is no LookupRouteRequest")
}

func TestALookupThatItsCallerLeftIsNotCalledUndecodable(t *testing.T) {
	r := newRig(t)
	for _, gone := range []codes.Code{codes.Canceled, codes.DeadlineExceeded} {
		_, err := handleLookupRoute(r.Service, t.Context(), func(any) error { return status.Error(gone, "gone") }, nil)
		require.Equal(t, gone, status.Code(err))
	}
	require.Zero(t, r.value("inferencecache_lookup_rejected_total", prometheus.Labels{"reason": "undecodable"}))
	require.NotContains(t, r.log.String(), "LookupRouteRequest")
}
