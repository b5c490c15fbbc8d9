package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/rig"
)

var ctx = context.Background()

func TestALookupNamesTheReplicasThatHoldThePrefix(t *testing.T) {
	p := newPod(t)
	p.holds(t, "r1", "a", "b")
	p.holds(t, "r2", "a")
	p.holds(t, "r3", "z")
	r := dialPod(t, p.Addr()).LookupRoute(ctx, request("a", "b"))
	requireHint(t, "r1", r)
	require.Equal(t, PrefixMatch, r.Reason)
	require.Equal(t, "PREFIX_MATCH", r.Code)
	require.Len(t, r.Replicas, 2)
}

func TestAnythingThatGoesWrongIsANoHint(t *testing.T) {
	p := newPod(t)
	p.holds(t, "r1", "a")
	c := dialPod(t, p.Addr(), func(o *Options) { o.Timeout = 2 * time.Second })
	requireHint(t, "r1", c.LookupRoute(ctx, request("a")))

	t.Run("a pod that does not answer", func(t *testing.T) {
		p.Pause()
		defer p.Resume()
		short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		r := c.LookupRoute(short, request("a"))
		require.Equal(t, Timeout, r.Reason)
		requireCode(t, codes.DeadlineExceeded, r.Err)
		require.Empty(t, r.Code)
		require.Empty(t, r.Replicas)
	})
	t.Run("a caller that has gone", func(t *testing.T) {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		r := c.LookupRoute(gone, request("a"))
		require.Equal(t, Timeout, r.Reason)
		require.Error(t, r.Err)
	})
	t.Run("a pod that has gone, and comes back", func(t *testing.T) {
		p.Down()
		rig.Eventually(t, limit, "a lookup that nobody answers", func() error {
			r := c.LookupRoute(ctx, request("a"))
			if r.Err == nil || r.Reason != NoHint {
				return fmt.Errorf("%+v", r)
			}
			require.Empty(t, r.Replicas)
			return nil
		})
		p.Up()
		rig.Eventually(t, limit, "hints again", func() error { return c.LookupRoute(ctx, request("a")).Err })
		requireHint(t, "r1", c.LookupRoute(ctx, request("a")))
	})
	t.Run("a request that cannot be sent", func(t *testing.T) {
		r := c.LookupRoute(ctx, &pb.LookupRouteRequest{ModelId: "\xff"})
		require.Equal(t, NoHint, r.Reason)
		require.Error(t, r.Err)
	})
	t.Run("a request that makes no sense", func(t *testing.T) {
		both := request("a")
		both.PackedBlockHashes, both.PackedHashBytes = []byte("a"), 1
		for _, bad := range []*pb.LookupRouteRequest{
			nil, both,
			{PackedBlockHashes: []byte("abc"), PackedHashBytes: 2, BlockTokenCounts: []int32{64}},
			{PackedBlockHashes: []byte("abc"), BlockTokenCounts: []int32{64}},
			{PackedBlockHashes: []byte("abc"), PackedHashBytes: 1},
			{PackedBlockHashes: []byte("abc"), PackedHashBytes: 1, BlockTokenCounts: []int32{64, 64}},
		} {
			r := c.LookupRoute(ctx, bad)
			require.Equal(t, NoHint, r.Reason)
			require.ErrorIs(t, r.Err, ErrRequest)
		}
	})
	requireHint(t, "r1", c.LookupRoute(ctx, request("a")))
}

func TestNobodyAtTheTargetIsANoHintAtOnce(t *testing.T) {
	c := dialPod(t, rig.FreeAddr(t))
	r := c.LookupRoute(ctx, request("a"))
	require.Equal(t, NoHint, r.Reason)
	requireCode(t, codes.Unavailable, r.Err)
}

// newerPod answers with a code of the future.
type newerPod struct {
	pb.UnimplementedInferenceCacheServer
}

func (newerPod) LookupRoute(context.Context, *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	return &pb.LookupRouteResponse{ReasonCode: "MOON_PHASE", ReplicaScores: []*pb.ReplicaScore{{ReplicaId: "r1"}}}, nil
}

func TestACodeThatIsNotKnownIsANoHint(t *testing.T) {
	c := dialPod(t, serve(t, func(g *grpc.Server) { pb.RegisterInferenceCacheServer(g, newerPod{}) }))
	r := c.LookupRoute(ctx, request("a"))
	require.Equal(t, NoHint, r.Reason)
	require.Equal(t, "MOON_PHASE", r.Code)
	require.ErrorIs(t, r.Err, ErrUnknownCode)
	require.Empty(t, r.Replicas)
	_, ok := r.Best()
	require.False(t, ok)
}

func TestAPodHearsTheDeadline(t *testing.T) {
	p := newPod(t)
	left := make(chan time.Duration, 1)
	p.header = func(ctx context.Context) {
		d, _ := ctx.Deadline()
		left <- time.Until(d)
	}
	c := dialPod(t, p.Addr(), func(o *Options) { o.Timeout = time.Minute })
	c.LookupRoute(ctx, request("a"))
	require.LessOrEqual(t, <-left, time.Minute)
	tighter, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	c.LookupRoute(tighter, request("a"))
	require.LessOrEqual(t, <-left, 40*time.Second)

	standard, err := Dial(p.Addr(), Options{})
	require.NoError(t, err)
	defer standard.Close()
	require.Equal(t, DefaultTimeout, standard.timeout)
}

func TestMismatchesAreToldOnce(t *testing.T) {
	p := newPod(t)
	p.holds(t, "r1", "a")
	var told []Mismatch
	c := dialPod(t, p.Addr(), func(o *Options) { o.OnMismatch = func(m Mismatch) { told = append(told, m) } })
	for range 2 {
		for _, names := range [][3]string{{"t", "m", "s"}, {"nobody", "m", "s"}, {"nobody", "other", "s"}, {"t", "none", "s"}, {"t", "m", "odd"}} {
			req := request("a")
			req.TenantId, req.ModelId, req.HashScheme = names[0], names[1], names[2]
			r := c.LookupRoute(ctx, req)
			require.NoError(t, r.Err)
			require.Equal(t, names == [3]string{"t", "m", "s"}, len(r.Replicas) > 0)
		}
	}
	require.Equal(t, []Mismatch{
		{Reason: UnknownTenant, Tenant: "nobody"},
		{Reason: UnknownModel, Tenant: "t", Model: "none"},
		{Reason: UnknownHashScheme, Tenant: "t", Model: "m", Scheme: "odd"},
	}, told)

	var log bytes.Buffer
	logs := dialPod(t, p.Addr(), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	req := request("a")
	req.TenantId = "nobody"
	logs.LookupRoute(ctx, req)
	logs.LookupRoute(ctx, req)
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
	require.Contains(t, log.String(), "compare tenant_id")

	m := mismatches{}
	for i := range 2 * mostMismatches {
		m.first(Mismatch{Tenant: strconv.Itoa(i)})
	}
	require.Len(t, m.told, mostMismatches)
}

func TestTLSAndTokens(t *testing.T) {
	certs := rig.NewCerts(t)
	p := newPod(t, mutualTLS(t, certs))
	p.holds(t, "r1", "a")
	tokens := make(chan []string, 1)
	p.header = func(ctx context.Context) {
		md, _ := metadata.FromIncomingContext(ctx)
		tokens <- md.Get("authorization")
	}
	c := dialPod(t, p.Addr(), func(o *Options) {
		o.TLS = certs.ClientConfig()
		o.Token = func(context.Context) (string, error) { return "secret", nil }
	})
	requireHint(t, "r1", c.LookupRoute(ctx, request("a")))
	require.Equal(t, []string{"Bearer secret"}, <-tokens)

	require.Error(t, dialPod(t, p.Addr()).LookupRoute(ctx, request("a")).Err, "plaintext")
	stranger := dialPod(t, p.Addr(), func(o *Options) { o.TLS = rig.NewCerts(t).ClientConfig() })
	require.Error(t, stranger.LookupRoute(ctx, request("a")).Err, "certificate of another authority")

	none := dialPod(t, p.Addr(), func(o *Options) {
		o.TLS = certs.ClientConfig()
		o.Token = func(context.Context) (string, error) { return "", errors.New("the file is gone") }
	})
	r := none.LookupRoute(ctx, request("a"))
	require.Equal(t, NoHint, r.Reason)
	require.ErrorContains(t, r.Err, "the file is gone")
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	token := func(context.Context) (string, error) { return "secret", nil }
	_, err := Dial("localhost:1", Options{Token: token})
	require.ErrorContains(t, err, "TokenInClear")
	_, err = Dial("localhost:1", Options{Timeout: -1})
	require.ErrorContains(t, err, "timeout")
	cleartext, err := Dial("localhost:1", Options{Token: token, TokenInClear: true})
	require.NoError(t, err)
	require.NoError(t, cleartext.Close())
}

func TestLookupsGoRoundHealthyPods(t *testing.T) {
	one, two := newPod(t), newPod(t)
	one.holds(t, "r1", "a")
	two.holds(t, "r1", "a")
	c := dialPod(t, "all:///pods", allOf(one.Addr(), two.Addr()))
	asked := func(p *testPod) int64 { return p.plain.Load() + p.packed.Load() }
	rig.Eventually(t, limit, "both pods being asked", func() error {
		requireHint(t, "r1", c.LookupRoute(ctx, request("a")))
		if asked(one) == 0 || asked(two) == 0 {
			return errors.New("one is not")
		}
		return nil
	})
	two.health.SetServingStatus(pb.InferenceCache_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_NOT_SERVING)
	rig.Eventually(t, limit, "only the healthy pod being asked", func() error {
		before := asked(two)
		for range 10 {
			requireHint(t, "r1", c.LookupRoute(ctx, request("a")))
		}
		if asked(two) != before {
			return errors.New("the other is")
		}
		return nil
	})
}

func TestStateAndPublish(t *testing.T) {
	p := newPod(t)
	p.holds(t, "r1", "a", "b")
	c := dialPod(t, p.Addr())
	require.NoError(t, c.Publish(ctx, &pb.CacheEvent{Type: pb.CacheEvent_PREFIX_EVICTED, TenantId: "t", ModelId: "m", ReplicaId: "r1", PrefixHash: []byte("b")}))
	s, err := c.State(ctx, "t", "m")
	require.NoError(t, err)
	require.EqualValues(t, 1, s.GetSummary().GetTotalPrefixes())
	p.down.Store(true)
	requireCode(t, codes.Unavailable, c.Publish(ctx, &pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, TenantId: "t", ModelId: "m", ReplicaId: "r1"}))
}
