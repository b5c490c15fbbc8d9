package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"inferencecache.io/lookuptier/cmd/internal/flagvalues"
	"inferencecache.io/lookuptier/cmd/internal/redisfiles"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/sidecar"
	"inferencecache.io/lookuptier/sidecar/follow"
	"inferencecache.io/lookuptier/sidecar/mirror"
	"inferencecache.io/lookuptier/sidecar/scrape"
	"inferencecache.io/lookuptier/sidecar/writer"
	"inferencecache.io/lookuptier/sidecar/zmtp"
	"inferencecache.io/lookuptier/store"
)

// config is the command line; docs/sidecar.md explains each flag.
type config struct {
	ReplicaID  string `name:"replica-id" group:"identity" placeholder:"ID" help:"The engine's replica id, as gateways know it. Required."`
	ModelID    string `name:"model-id" group:"identity" placeholder:"ID" help:"The model that it serves. Required."`
	TenantID   string `name:"tenant-id" group:"identity" placeholder:"ID" help:"The tenant that it serves. Required."`
	HashScheme string `name:"hash-scheme" group:"identity" placeholder:"NAME" help:"The scheme that lookups name for content fingerprints, such as vllm. Required."`

	EngineEndpoint       []string          `name:"engine-endpoint" group:"engine" default:"tcp://127.0.0.1:5557" placeholder:"ENDPOINT" help:"Where the engine publishes events (${default}); one for each data-parallel rank, separated by commas."`
	EngineReplayEndpoint []string          `name:"engine-replay-endpoint" group:"engine" placeholder:"ENDPOINT" help:"Where it replays them, one for each engine endpoint. Empty = nowhere: then a gap costs what was known before it."`
	DataParallelSize     int               `name:"data-parallel-size" group:"engine" default:"1" placeholder:"N" help:"Follow N ranks on consecutive ports from the engine endpoint's on (${default})."`
	Topic                string            `group:"engine" placeholder:"TOPIC" help:"Take only events whose topic begins so. Empty = all."`
	LoraAdapterNames     map[int64]string  `name:"lora-adapter-names" group:"engine" mapsep:"," placeholder:"ID=NAME" help:"Names of adapters by lora_id, for engines that send none: 1=french,2=sql."`
	MediumTiers          map[string]string `name:"medium-tiers" group:"engine" mapsep:"," placeholder:"MEDIUM=TIER" help:"How far media lie from the GPU: EXTERNAL=T3. GPU is T1, REMOTE T3, any other T2."`
	IgnoreBlockRemoved   bool              `name:"ignore-block-removed" group:"engine" help:"An offload tier that announces nothing keeps evicted blocks: a removal makes a block T2, until --ttl after."`
	MaxBlocks            int               `name:"max-blocks" group:"engine" default:"8388608" placeholder:"N" help:"Blocks to mirror at most, about 90 bytes each (${default})."`

	EngineMetricsURL      string  `name:"engine-metrics-url" group:"stats" default:"http://127.0.0.1:8000/metrics" placeholder:"URL" help:"The engine's metrics (${default}). Empty = no stats."`
	EngineModelName       string  `name:"engine-model-name" group:"stats" placeholder:"NAME" help:"The label model_name of the series to read, if the engine has several models. Empty = --model-id or the only one."`
	StatsInterval         span    `name:"stats-interval" group:"stats" default:"5s" placeholder:"DURATION" help:"Time between two scrapes (${default})."`
	EngineCacheSizeBytes  int64   `name:"engine-cache-size-bytes" group:"stats" default:"0" placeholder:"BYTES" help:"Size of the engine's cache, to tell the bytes in use (${default} = not known)."`
	MaxConcurrencyCeiling float64 `name:"max-concurrency-ceiling" group:"stats" default:"256" placeholder:"N" help:"Requests, running and waiting, that mean a pressure of 1 (${default})."`
	PressureWaiting       float64 `name:"pressure-waiting-weight" group:"stats" default:"1" placeholder:"WEIGHT" help:"How many running requests a waiting one counts for (${default})."`
	PressureCache         float64 `name:"pressure-cache-weight" group:"stats" default:"1" placeholder:"WEIGHT" help:"Pressure of a cache that is all in use (${default}); 0 = cache use says nothing."`

	Redis      string           `group:"index" placeholder:"URL" help:"Redis or Valkey: redis://host:port/db, rediss:// for TLS, several hosts for a Cluster, ?master_name= for Sentinel. Required."`
	RedisFiles redisfiles.Flags `embed:""`
	Shards     int              `group:"index" default:"1" placeholder:"K" help:"Partitions of each model of a tenant (${default}); all components of a tier must agree."`
	KeyTTL     span             `name:"key-ttl" group:"index" default:"24h" placeholder:"DURATION" help:"How long Redis keeps what is not reported again (${default}); as the lookup pods'."`
	Window     span             `group:"index" default:"5ms" placeholder:"DURATION" help:"Least time between two writes, in which changes gather; a first change does not wait (${default})."`
	BatchSize  int              `name:"batch-size" group:"index" default:"1000" placeholder:"N" help:"Changes in one write at most (${default})."`
	Lease      span             `group:"index" default:"15s" placeholder:"DURATION" help:"How long lookups trust the replica without a sign of life (${default}); 0 = no lease, it lives by TTL."`
	TTL        span             `name:"ttl" group:"index" default:"30m" placeholder:"DURATION" help:"The policy's evictionTTL of the tenant (${default})."`
	Refresh    span             `group:"index" default:"0s" placeholder:"DURATION" help:"How often a block that stays is reported again (${default} = a sixth of --ttl)."`
	OnExit     string           `name:"on-exit" group:"index" default:"retire" enum:"retire,keep" placeholder:"WHAT" help:"retire: nothing of the replica is left at the end. keep: a new sidecar takes over (${default})."`

	HTTPBindAddress string `name:"http-bind-address" group:"process" default:":8081" placeholder:"HOST:PORT" help:"Where /healthz, /readyz and /metrics are (${default})."`
	LogFormat       string `name:"log-format" group:"process" default:"json" enum:"json,text" placeholder:"FORMAT" help:"json or text (${default})."`
	LogLevel        string `name:"log-level" group:"process" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"debug, info, warn or error (${default})."`

	Version kong.VersionFlag `env:"-" help:"Print the version."`
}

type span = flagvalues.Span

const (
	maxShards = 1024
	// maxWindow is far more than batches gain by: what waits longer is a wrong unit.
	maxWindow = span(time.Minute)
)

var tiers = map[string]ranking.Tier{"T1": ranking.TierT1, "T2": ranking.TierT2, "T3": ranking.TierT3}

// tierOf reads a tier; TierNone is none.
func tierOf(name string) ranking.Tier { return tiers[strings.ToUpper(name)] }

// parse reads and checks the command line. If done is true the process ends with code.
func parse(args []string, stdout, stderr io.Writer) (c *config, code int, done bool) {
	c = &config{}
	exited := false // by --help or --version, which have printed all there is to say
	parser, err := kong.New(c,
		kong.Name("kvsidecar"),
		kong.Description("An engine sidecar: keeps the index in Redis equal to one engine's KV cache.\n\n"+
			"Each flag can be set by an environment variable, KVSIDECAR_ and its name: KVSIDECAR_REPLICA_ID=pod-0. "+
			"A flag on the command line wins."),
		kong.DefaultEnvars("KVSIDECAR"),
		flagvalues.Options(),
		kong.Vars{"version": fmt.Sprintf("kvsidecar %s (%s, %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)},
		kong.ExplicitGroups([]kong.Group{
			{Key: "identity", Title: "Identity"}, {Key: "engine", Title: "Engine"}, {Key: "stats", Title: "Stats"},
			{Key: "index", Title: "Index"}, {Key: "process", Title: "Process"},
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
		return nil, fail(stderr, &usageError{fmt.Errorf("%w; kvsidecar --help lists the flags", err)}), true
	}
	if err := c.check(); err != nil {
		return nil, fail(stderr, &usageError{err}), true
	}
	return c, exitOK, false
}

// check returns the first thing that makes no sense, and what to write instead.
func (c *config) check() error {
	var missing []string
	for _, f := range []struct{ flag, value string }{
		{"--replica-id", c.ReplicaID}, {"--model-id", c.ModelID}, {"--tenant-id", c.TenantID},
		{"--hash-scheme", c.HashScheme}, {"--redis", c.Redis},
	} {
		if f.value == "" {
			missing = append(missing, f.flag)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing: give %s (or KVSIDECAR_ variables)", strings.Join(missing, ", "))
	}
	if _, err := store.ParseURL(c.Redis); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	if _, port, err := net.SplitHostPort(c.HTTPBindAddress); err != nil || !isPort(port) {
		return fmt.Errorf("--http-bind-address is %q: write host:port or :port, the port a number up to 65535", c.HTTPBindAddress)
	}
	if c.Lease != 0 && c.Lease < span(time.Second) {
		return fmt.Errorf("--lease is %v: write at least 1s, such as 15s, or 0 for none", time.Duration(c.Lease))
	}
	if c.TTL < span(time.Second) {
		return fmt.Errorf("--ttl is %v: write the tenant's evictionTTL, such as 30m", time.Duration(c.TTL))
	}
	if c.Refresh > 0 && c.Refresh*3/2 >= c.TTL {
		return fmt.Errorf("--refresh is %v and --ttl %v: blocks would age out before they are reported again; write a third of --ttl or less", time.Duration(c.Refresh), time.Duration(c.TTL))
	}
	if c.KeyTTL <= c.TTL {
		return fmt.Errorf("--key-ttl is %v and --ttl %v: write a longer --key-ttl", time.Duration(c.KeyTTL), time.Duration(c.TTL))
	}
	if c.StatsInterval < span(100*time.Millisecond) {
		return fmt.Errorf("--stats-interval is %v: write at least 100ms, such as 5s", time.Duration(c.StatsInterval))
	}
	if c.Shards < 1 || c.Shards > maxShards {
		return fmt.Errorf("--shards is %d: write 1 to %d, the same for all components", c.Shards, maxShards)
	}
	if c.Window < 0 || c.Window > maxWindow {
		return fmt.Errorf("--window is %v: write 0s to %v, such as 5ms", time.Duration(c.Window), time.Duration(maxWindow))
	}
	if c.BatchSize < 1 || c.BatchSize > 100_000 {
		return fmt.Errorf("--batch-size is %d: write 1 to 100000", c.BatchSize)
	}
	if c.MaxBlocks < 1 || int64(c.MaxBlocks) > 1<<31 {
		return fmt.Errorf("--max-blocks is %d: write 1 to %d", c.MaxBlocks, int64(1)<<31)
	}
	// Written so that NaN fails too.
	if !(c.MaxConcurrencyCeiling > 0) || !(c.PressureWaiting >= 0) || !(c.PressureCache >= 0) || c.EngineCacheSizeBytes < 0 {
		return errors.New("--max-concurrency-ceiling must be more than 0, the weights of pressure and --engine-cache-size-bytes 0 or more")
	}
	for medium, name := range c.MediumTiers {
		if tierOf(name) == ranking.TierNone {
			return fmt.Errorf("--medium-tiers %s=%s: write T1, T2 or T3", medium, name)
		}
	}
	if err := c.spread(); err != nil {
		return err
	}
	return c.endpoints()
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// spread turns a data-parallel size into an endpoint for each rank.
func (c *config) spread() error {
	if c.DataParallelSize < 1 || c.DataParallelSize > 1024 {
		return fmt.Errorf("--data-parallel-size is %d: write 1 to 1024", c.DataParallelSize)
	}
	if c.DataParallelSize == 1 {
		return nil
	}
	for _, list := range []*[]string{&c.EngineEndpoint, &c.EngineReplayEndpoint} {
		if len(*list) == 0 {
			continue
		}
		if len(*list) > 1 {
			return fmt.Errorf("--data-parallel-size %d beside several endpoints: give one, of rank 0, or leave the size out", c.DataParallelSize)
		}
		first := (*list)[0]
		i := strings.LastIndexByte(first, ':')
		port, err := strconv.Atoi(first[i+1:])
		if err != nil || !strings.HasPrefix(first, "tcp://") {
			return fmt.Errorf("--data-parallel-size needs endpoints of the form tcp://host:port, not %q", first)
		}
		*list = nil
		for rank := range c.DataParallelSize {
			*list = append(*list, fmt.Sprintf("%s:%d", first[:i], port+rank))
		}
	}
	return nil
}

// endpoints checks each endpoint. An engine that is followed twice would be two ranks with
// the same blocks.
func (c *config) endpoints() error {
	for _, list := range []struct {
		flag      string
		endpoints []string
	}{{"--engine-endpoint", c.EngineEndpoint}, {"--engine-replay-endpoint", c.EngineReplayEndpoint}} {
		for _, e := range list.endpoints {
			if e == "" && list.flag == "--engine-replay-endpoint" {
				continue // this engine replays nowhere
			}
			if _, _, err := zmtp.ParseEndpoint(e); err != nil {
				return fmt.Errorf("%s: %w", list.flag, err)
			}
		}
	}
	seen := map[string]bool{}
	for _, e := range c.EngineEndpoint {
		if seen[e] {
			return fmt.Errorf("--engine-endpoint: %s is given twice: write each rank's own, once", e)
		}
		seen[e] = true
	}
	return nil
}

// sidecar is what the flags mean.
func (c *config) sidecar(log *slog.Logger) sidecar.Config {
	media := map[string]ranking.Tier{}
	for medium, name := range c.MediumTiers {
		media[medium] = tierOf(name)
	}
	refresh, lease := time.Duration(c.Refresh), time.Duration(c.Lease)
	if refresh == 0 {
		refresh = time.Duration(c.TTL) / 6
	}
	if lease == 0 {
		lease = -1
	}
	// 0 is the default of a weight, and nothing is nothing.
	off := func(w float64) float64 {
		if w == 0 {
			return -1
		}
		return w
	}
	return sidecar.Config{
		Scope:     ranking.Scope{Tenant: c.TenantID, Model: c.ModelID},
		Replica:   c.ReplicaID,
		Scheme:    c.HashScheme,
		Endpoints: c.EngineEndpoint,
		Replays:   c.EngineReplayEndpoint,
		Follow:    follow.Options{Topic: c.Topic},
		Mirror: mirror.Options{Adapters: c.LoraAdapterNames, Media: media, MaxBlocks: c.MaxBlocks,
			KeepEvicted: c.IgnoreBlockRemoved, KeepFor: time.Duration(c.TTL)},
		Writer: writer.Options{Window: max(time.Duration(c.Window), time.Microsecond), BatchSize: c.BatchSize, Lease: lease, Refresh: refresh},
		Scrape: scrape.Options{URL: c.EngineMetricsURL, Model: c.EngineModelName, CacheBytes: c.EngineCacheSizeBytes,
			Ceiling: c.MaxConcurrencyCeiling, WaitingWeight: off(c.PressureWaiting), CacheWeight: off(c.PressureCache), Version: "kvsidecar/" + version},
		StatsInterval: time.Duration(c.StatsInterval),
		Keep:          c.OnExit == "keep",
		Logger:        log,
	}
}
