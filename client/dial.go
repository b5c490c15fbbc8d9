package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // lets the channel watch the pods' health
	"google.golang.org/grpc/keepalive"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// DefaultTimeout bounds a lookup.
const DefaultTimeout = 20 * time.Millisecond

// Options of a Client. The zero value talks plaintext and needs no token.
type Options struct {
	// TLS verifies the pods, and with Certificates or GetClientCertificate in it shows
	// them who the client is; nil = plaintext.
	TLS *tls.Config
	// Token returns the bearer token of a call; nil = none. It is called before every
	// call, by many goroutines, and must not block. It needs TLS, unless TokenInClear.
	Token func(ctx context.Context) (string, error)
	// TokenInClear lets tokens travel without TLS, where the network is trusted.
	TokenInClear bool
	// Timeout bounds each LookupRoute; a tighter deadline of its context wins.
	// 0 = DefaultTimeout.
	Timeout time.Duration
	// PlainChains never packs a chain.
	PlainChains bool
	// OnMismatch is told, once for each, of names that producers and gateways do not
	// agree on. It is called on the lookup's goroutine and must return soon.
	// nil = a warning in Log.
	OnMismatch func(Mismatch)
	// Log gets those warnings; nil = slog.Default().
	Log *slog.Logger
	// GRPC are further options of the channel, such as a stats handler for traces.
	// They come last, so they win.
	GRPC []grpc.DialOption
}

// Client talks to the lookup pods of one tier. It is safe for many goroutines, and
// one is enough for a process.
type Client struct {
	conn       *grpc.ClientConn
	rpc        pb.InferenceCacheClient
	timeout    time.Duration
	packing    packing
	mismatches mismatches
}

// serviceConfig spreads calls over all pods that say they are healthy. An event is
// safe to repeat; a lookup is not worth it: its answer would come too late.
const serviceConfig = `{
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "inferencecache.v1alpha1.InferenceCache"},
  "methodConfig": [{
    "name": [
      {"service": "inferencecache.v1alpha1.InferenceCache", "method": "PublishEvent"},
      {"service": "inferencecache.v1alpha1.InferenceCache", "method": "GetCacheState"}
    ],
    "retryPolicy": {
      "maxAttempts": 4, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 3,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
}`

// Dial makes a client for target, a gRPC target: dns:///lookup-pods:9090 with the
// name of a headless Service finds every pod and spreads calls over them; host:port
// is the same with one. It starts to connect and does not wait: a tier that is away
// gives no hints. The error is one of the options or of the target's form.
func Dial(target string, o Options) (*Client, error) {
	if o.Timeout < 0 {
		return nil, fmt.Errorf("client: a timeout of %v is not possible; give more than 0, or 0 for %v", o.Timeout, DefaultTimeout)
	}
	if o.Token != nil && o.TLS == nil && !o.TokenInClear {
		return nil, errors.New("client: a token needs Options.TLS; set TokenInClear if the network may see it")
	}
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			// A pod that vanished is found out in seconds; pods permit a ping each 10 s.
			Time: 15 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.WithIdleTimeout(0), // the first lookup after a quiet night must not have to connect
	}
	if o.Token != nil {
		dial = append(dial, o.bearer()...)
	}
	conn, err := grpc.NewClient(target, append(dial, o.GRPC...)...)
	if err != nil {
		return nil, fmt.Errorf("client: target %q: %w", target, err)
	}
	conn.Connect()
	c := &Client{conn: conn, rpc: pb.NewInferenceCacheClient(conn), timeout: o.Timeout}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	c.packing.never = o.PlainChains
	c.mismatches.tell = o.OnMismatch
	if c.mismatches.tell == nil {
		log := o.Log
		if log == nil {
			log = slog.Default()
		}
		c.mismatches.tell = func(m Mismatch) { m.warn(log) }
	}
	return c, nil
}

// Close ends the connections. Calls under way fail; close Reporters first.
func (c *Client) Close() error {
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// Conn is the channel, for the calls that this package has no method for.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Publish sends one event by itself, now. An event that must not overtake a report
// goes through the Reporter instead. UNAVAILABLE is tried again a few times.
func (c *Client) Publish(ctx context.Context, e *pb.CacheEvent) error {
	ack, err := c.rpc.PublishEvent(ctx, e)
	return acknowledged(ack, err)
}

// State lists the stats of a (tenant, model) and counts its prefix keys.
func (c *Client) State(ctx context.Context, tenant, model string) (*pb.GetCacheStateResponse, error) {
	return c.rpc.GetCacheState(ctx, &pb.GetCacheStateRequest{TenantId: tenant, ModelId: model})
}

// bearer attaches the token call by call and not to the connection: the watch of a
// pod's health needs none, and must not fail with it.
func (o *Options) bearer() []grpc.DialOption {
	creds := grpc.PerRPCCredentials(bearer{token: o.Token, inClear: o.TokenInClear})
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(ctx, method, req, reply, cc, append(opts, creds)...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(ctx, desc, cc, method, append(opts, creds)...)
		}),
	}
}

type bearer struct {
	token   func(context.Context) (string, error)
	inClear bool
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil {
		return nil, fmt.Errorf("client: no token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return !b.inClear }
