package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(exitCoder{m})
}

// exitCoder lets the binaries of pods go before goroutines are counted.
type exitCoder struct{ m *testing.M }

func (e exitCoder) Run() int { return pod.Main(e.m) }

// limit of what is waited for, on a machine busy with something else.
const limit = 30 * time.Second

// testPod is the real service on the model index, behind a proxy.
type testPod struct {
	*rankingtest.Model
	*rig.Proxy
	server *grpc.Server
	health *health.Server

	old     atomic.Bool // a version that knows nothing of packed chains
	down    atomic.Bool // Redis takes no reports
	plain   atomic.Int64
	packed  atomic.Int64
	mu      sync.Mutex
	header  func(ctx context.Context)
	arrived []string // reports and events, as the index got them
	refuse  func(replica string) error
}

func newPod(t testing.TB, options ...grpc.ServerOption) *testPod {
	t.Helper()
	p := &testPod{Model: rankingtest.New(func() int64 { return time.Now().UnixMilli() }), health: health.NewServer()}
	s, err := lookupsvc.New(lookupsvc.Options{Index: p, Knobs: ranking.DefaultKnobs(), LookupTimeout: limit})
	require.NoError(t, err)
	p.server = grpc.NewServer(append(lookupsvc.ServerOptions(), append(options,
		grpc.ChainUnaryInterceptor(p.unary), grpc.ChainStreamInterceptor(p.stream))...)...)
	lookupsvc.Register(p.server, s)
	healthpb.RegisterHealthServer(p.server, p.health)
	p.health.SetServingStatus(pb.InferenceCache_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = p.server.Serve(l) })
	t.Cleanup(func() {
		p.server.Stop()
		serving.Wait()
	})
	p.Proxy = rig.NewProxy(t, l.Addr().String())
	return p
}

// Report and Publish are the index's, with what the test lets go wrong.
func (p *testPod) Report(ctx context.Context, rs ...*ranking.Report) error {
	if p.down.Load() {
		return errors.New("redis is down")
	}
	p.mu.Lock()
	for _, r := range rs {
		for _, e := range r.Entries {
			p.arrived = append(p.arrived, r.Replica+" holds "+string(e.Hash))
		}
	}
	p.mu.Unlock()
	return p.Model.Report(ctx, rs...)
}

func (p *testPod) Publish(ctx context.Context, e *ranking.Event) error {
	if p.down.Load() {
		return errors.New("redis is down")
	}
	p.mu.Lock()
	p.arrived = append(p.arrived, e.Replica+" lost "+string(e.Hash))
	p.mu.Unlock()
	return p.Model.Publish(ctx, e)
}

func (p *testPod) history() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.arrived...)
}

// unary counts the forms of lookups, and makes an old pod of a new one.
func (p *testPod) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	p.mu.Lock()
	header := p.header
	p.mu.Unlock()
	if header != nil {
		header(ctx)
	}
	r, ok := req.(*pb.LookupRouteRequest)
	if !ok {
		return next(ctx, req)
	}
	if len(r.GetPackedBlockHashes()) > 0 {
		p.packed.Add(1)
	} else {
		p.plain.Add(1)
	}
	if !p.old.Load() {
		return next(ctx, req)
	}
	r = proto.CloneOf(r)
	r.PackedBlockHashes, r.PackedHashBytes = nil, 0
	resp, err := next(ctx, r)
	resp.(*pb.LookupRouteResponse).PackedChains = false
	return resp, err
}

func (p *testPod) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, podStream{s, p})
}

type podStream struct {
	grpc.ServerStream
	p *testPod
}

func (s podStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	u, ok := m.(*pb.CacheStateUpdate)
	if !ok || err != nil {
		return err
	}
	s.p.mu.Lock()
	refuse := s.p.refuse
	s.p.mu.Unlock()
	if refuse != nil {
		if err := refuse(u.GetReplicaId()); err != nil {
			return err
		}
	}
	if s.p.old.Load() {
		for _, e := range u.GetPrefixes() {
			e.PackedBlockHashes, e.PackedHashBytes = nil, 0
		}
	}
	return nil
}

func (s podStream) SendMsg(m any) error {
	if ack, ok := m.(*pb.Ack); ok && s.p.old.Load() {
		ack.PackedChains = false
	}
	return s.ServerStream.SendMsg(m)
}

// dialPod dials with a timeout that a busy machine does not exceed.
func dialPod(t testing.TB, target string, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Timeout: limit}
	for _, f := range change {
		f(&o)
	}
	c, err := Dial(target, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// request asks for a chain of blocks of 64 tokens.
func request(hashes ...string) *pb.LookupRouteRequest {
	req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "s"}
	for _, h := range hashes {
		req.BlockHashes = append(req.BlockHashes, []byte(h))
		req.BlockTokenCounts = append(req.BlockTokenCounts, 64)
	}
	return req
}

// update says that a replica holds a chain of such blocks.
func update(replica string, hashes ...string) *pb.CacheStateUpdate {
	r := request(hashes...)
	return &pb.CacheStateUpdate{TenantId: "t", ModelId: "m", HashScheme: "s", ReplicaId: replica,
		Prefixes: []*pb.PrefixEntry{{BlockHashes: r.BlockHashes, BlockTokenCounts: r.BlockTokenCounts}}}
}

func (p *testPod) holds(t testing.TB, replica string, hashes ...string) {
	t.Helper()
	rep := &ranking.Report{Scope: ranking.Scope{Tenant: "t", Model: "m"}, Replica: replica, Scheme: "s"}
	for i, h := range hashes {
		rep.Entries = append(rep.Entries, ranking.Entry{Hash: []byte(h), Tokens: int32(64 * (i + 1)), Tier: ranking.TierT1})
	}
	require.NoError(t, p.Model.Report(context.Background(), rep))
}

func requireHint(t testing.TB, want string, r Result) {
	t.Helper()
	require.NoError(t, r.Err)
	got, ok := r.Best()
	require.True(t, ok, r.Code)
	require.Equal(t, want, got)
}

func requireCode(t testing.TB, want codes.Code, err error) {
	t.Helper()
	require.Equal(t, want, status.Code(err), "%v", err)
}

// mutualTLS lets a server show the certificate and ask for one of the same authority.
func mutualTLS(t testing.TB, c *rig.Certs) grpc.ServerOption {
	t.Helper()
	o := c.ClientConfig()
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: o.Certificates, ClientCAs: o.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}))
}

// serve runs a server until the test ends and returns where.
func serve(t testing.TB, register func(*grpc.Server)) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	register(g)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() {
		g.Stop()
		serving.Wait()
	})
	return l.Addr().String()
}

// allOf lets the target all:///pods resolve to all addresses.
func allOf(addrs ...string) func(*Options) {
	r := manual.NewBuilderWithScheme("all")
	state := resolver.State{}
	for _, a := range addrs {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	return func(o *Options) { o.GRPC = append(o.GRPC, grpc.WithResolvers(r)) }
}
