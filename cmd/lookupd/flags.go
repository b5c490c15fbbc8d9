package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/alecthomas/kong"

	"inferencecache.io/lookuptier/cmd/internal/flagvalues"
	"inferencecache.io/lookuptier/cmd/internal/redisfiles"
)

// config is the command line; docs/configuration.md explains each flag.
type config struct {
	GRPCBindAddress string `name:"grpc-bind-address" group:"listeners" default:":9090" placeholder:"HOST:PORT" help:"Where gateways and producers call (${default})."`
	HTTPBindAddress string `name:"http-bind-address" group:"listeners" default:":8080" placeholder:"HOST:PORT" help:"Where /healthz, /readyz and /metrics are (${default})."`
	MaxConnAge      span   `name:"grpc-max-connection-age" group:"listeners" default:"5m" placeholder:"DURATION" help:"Age at which a gRPC connection is asked to reconnect, so that new pods get load (${default}); 0 = never."`
	TLSCert         string `name:"grpc-tls-cert-file" group:"listeners" placeholder:"FILE" help:"PEM of the gRPC port's certificate, followed while the pod runs. Empty = no TLS."`
	TLSKey          string `name:"grpc-tls-key-file" group:"listeners" placeholder:"FILE" help:"PEM of its key."`
	TLSClientCA     string `name:"grpc-tls-client-ca-file" group:"listeners" placeholder:"FILE" help:"PEM of the authorities whose certificates callers must show. Empty = callers need none."`

	AuthTokens        string `name:"auth-tokens-file" group:"auth" placeholder:"FILE" help:"YAML of bearer tokens and the tenants that each may look up and report for, followed while the pod runs. Empty = no tokens are asked for."`
	AuthAllowInsecure bool   `name:"auth-allow-insecure" group:"auth" help:"Take tokens without TLS on an address that is not loopback: something else encrypts the way."`

	Redis        string           `group:"index" placeholder:"URL" help:"Redis or Valkey: redis://host:port/db, rediss:// for TLS, several hosts for a Cluster, ?master_name= for Sentinel. Empty = an embedded store, which ends with the process."`
	EmbeddedBind string           `name:"embedded-redis-bind-address" group:"index" default:"${embedded}" placeholder:"HOST:PORT" help:"Where the embedded store listens for sidecars, on loopback (${default}); port 0 picks one."`
	RedisFiles   redisfiles.Flags `embed:""`
	ReadFrom     string           `name:"read-from" group:"index" default:"master" enum:"master,replica" placeholder:"WHERE" help:"Where lookups read what memory does not have: master, or replica of a Sentinel group or a Cluster, which may lag behind (${default})."`
	Shards       int              `group:"index" default:"1" placeholder:"K" help:"How many partitions each model of a tenant has, 1 to 1024 (${default}); all components of a tier must agree."`
	KeyTTL       span             `name:"key-ttl" group:"index" default:"24h" placeholder:"DURATION" help:"How long Redis keeps what is not reported again (${default}); longer than every policy's evictionTTL."`
	Sweep        span             `name:"sweep-interval" group:"index" default:"1m" placeholder:"DURATION" help:"How often expired holds are dropped (${default})."`

	Cache        string `group:"cache" default:"on" enum:"on,off" placeholder:"on|off" help:"Whether lookups are answered from the pod's own memory, kept right by Redis' change log (${default})."`
	CacheBytes   size   `name:"cache-bytes" group:"cache" default:"256MiB" placeholder:"SIZE" help:"Memory for blocks (${default})."`
	MaxStaleness span   `name:"max-staleness" group:"cache" default:"5s" placeholder:"DURATION" help:"How long answers may come from memory while Redis is away (${default})."`

	LookupTimeout   span   `name:"lookup-timeout" group:"lookups" default:"100ms" placeholder:"DURATION" help:"Longest time a lookup may take; a caller's deadline or its policy may be tighter (${default})."`
	PolicyDir       string `name:"policy-dir" group:"lookups" placeholder:"DIR" help:"Directory of CachePolicy files, followed while the pod runs. Empty = the default policy for every tenant."`
	EngineBlockSize int    `name:"engine-block-size" group:"lookups" default:"16" placeholder:"TOKENS" help:"Tokens in a block of the engines, for lookups by token ids (${default})."`

	PressureWeight  float32 `name:"pressure-weight" group:"ranking" default:"1.0" placeholder:"WEIGHT" help:"How much of its score a saturated replica loses (${default}); 0 = no penalty."`
	SLOTightTTFT    int32   `name:"slo-tight-ttft-ms" group:"ranking" default:"200" placeholder:"MS" help:"A request that wants its first token sooner than this favours fresh holds (${default}); 0 = none does."`
	SLOTightBias    float32 `name:"slo-tight-bias" group:"ranking" default:"1.0" placeholder:"BIAS" help:"How much it favours them (${default}); 0 = not at all."`
	HotMinHitRate   float32 `name:"tenant-hot-min-hit-rate" group:"ranking" default:"0.1" placeholder:"RATE" help:"Least hit rate, 0 to 1, of a TENANT_HOT replica (${default}); 0 = any. To switch TENANT_HOT off see the next flag."`
	TenantHotMaxAge span    `name:"tenant-hot-max-age" group:"ranking" default:"5m" placeholder:"DURATION" help:"Stats of this age say nothing about warmth (${default}); 0 = no TENANT_HOT."`

	LogFormat     string `name:"log-format" group:"process" default:"json" enum:"json,text" placeholder:"FORMAT" help:"json or text (${default})."`
	LogLevel      string `name:"log-level" group:"process" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"debug, info, warn or error (${default})."`
	Drain         span   `name:"drain" group:"process" default:"15s" placeholder:"DURATION" help:"How long calls in progress may take to end after SIGTERM before they are cut (${default})."`
	ShutdownDelay span   `name:"shutdown-delay" group:"process" default:"0s" placeholder:"DURATION" help:"How long the pod, not ready any more, still takes calls after SIGTERM, so that load balancers notice (${default})."`

	Version kong.VersionFlag `env:"-" help:"Print the version."`
}

// defaultEmbeddedBind is also how "not given" is recognised.
const defaultEmbeddedBind = "127.0.0.1:0"

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func isUsage(err error) bool {
	var u *usageError
	return errors.As(err, &u)
}

// parse reads and checks the command line. If done is true the process ends with code.
func parse(args []string, stdout, stderr io.Writer) (c *config, code int, done bool) {
	c = &config{}
	exited := false // by --help or --version, which have printed all there is to say
	parser, err := kong.New(c,
		kong.Name("lookupd"),
		kong.Description("A lookup pod: tells gateways which engine replica holds a prompt's KV cache.\n\n"+
			"Each flag can be set by an environment variable, LOOKUPD_ and its name: LOOKUPD_LOG_LEVEL=debug. "+
			"A flag on the command line wins. OTEL_EXPORTER_OTLP_ENDPOINT names a collector of traces."),
		kong.DefaultEnvars("LOOKUPD"),
		flagvalues.Options(reflect.TypeFor[size]()),
		kong.Vars{"version": versionLine(), "embedded": defaultEmbeddedBind},
		kong.ExplicitGroups([]kong.Group{
			{Key: "listeners", Title: "Listeners"}, {Key: "auth", Title: "Tokens"}, {Key: "index", Title: "Index"}, {Key: "cache", Title: "Cache"},
			{Key: "lookups", Title: "Lookups"},
			{Key: "ranking", Title: "Ranking"}, {Key: "process", Title: "Process"},
		}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true }),
	)
	if err != nil {
		return nil, fail(stderr, err), true
	}
	_, err = parser.Parse(args)
	if exited {
		return nil, exitOK, true
	}
	if err != nil {
		return nil, fail(stderr, &usageError{fmt.Errorf("%w; lookupd --help lists the flags", err)}), true
	}
	if err := c.check(); err != nil {
		return nil, fail(stderr, &usageError{err}), true
	}
	return c, exitOK, false
}
