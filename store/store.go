package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/scripts"
)

// Defaults of Options.
const (
	DefaultKeyTTL    = 24 * time.Hour
	DefaultLogLength = 2048
	// DefaultHeads bounds the parsed heads that a Store keeps.
	DefaultHeads = 1024
)

// minKeyTTL keeps a typing error from emptying the index between two reports.
const minKeyTTL = time.Second

// Options says how a Store keeps the index. Only Redis is required.
type Options struct {
	// Redis is a client of a standalone server, a Sentinel group or a Cluster.
	// The Store does not close it.
	Redis redis.UniversalClient
	// Replicas get the walks of lookups; nil = the masters do. The Store does not
	// close them.
	Replicas *Replicas
	// Shards is K, into how many partitions each (tenant, model) is split; 0 = 1.
	// All components must agree: Open fails with ErrLayout if Redis says otherwise.
	Shards int
	// KeyTTL is how long a hold is kept without being reported again; 0 =
	// DefaultKeyTTL. It must be longer than every policy's evictionTTL. Keys
	// themselves live twice as long, so that a sweeper empties them before Redis does.
	KeyTTL time.Duration
	// LogLength bounds the change log of a partition, in entries (Redis trims whole
	// nodes, so somewhat more may stand); 0 = DefaultLogLength. A follower that
	// falls further behind reads everything again.
	LogLength int64
	// Heads bounds the parsed partition heads in memory; 0 = DefaultHeads.
	Heads int
	// Observer hears of what the Store went on without; nil = nobody listens.
	Observer Observer
	// Tracer hears of walks; nil = nobody does.
	Tracer Tracer
	// Logger gets what an operator should know; nil = slog.Default().
	Logger *slog.Logger
}

// Observer hears of faults that cost a lookup a hint, but not its answer. Its
// methods are called on the lookup path: they must be quick and safe for concurrent use.
type Observer interface {
	// Garbage: something in Redis could not be read; what names the kind of thing
	// ("hold", "replica", "count", "space", "head", "log", "catalog", "key"), err says where and why.
	Garbage(what string, err error)
	// ShardFailed: a lookup went on without one of its shards.
	ShardFailed(shard int, err error)
}

// Tracer hears of what lookups read in Redis. It is called on the lookup path.
type Tracer interface {
	// Walk begins one walk of at most asked blocks (0: only the head is read) for the
	// call that ctx belongs to. done, if it is not nil, is told how many leading
	// blocks somebody held.
	Walk(ctx context.Context, shard, asked int) (done func(held int, err error))
}

// Store reads and writes the index. It is safe for concurrent use.
type Store struct {
	rdb      redis.UniversalClient
	replicas *Replicas
	shards   int
	keyTTL   time.Duration
	logLen   int64
	heads    *headCache
	observe  Observer
	tracer   Tracer
	log      *slog.Logger
	touched  *touches
}

// Open is New and Ready.
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Ready agrees with Redis on the layout and makes it load the scripts: what a
// component must do before it touches the index, and can do again to see whether
// Redis would take its calls. The error is ErrLayout if the component must not go on.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.CheckLayout(ctx); err != nil {
		return err
	}
	return scripts.Load(ctx, s.rdb)
}

// New checks o and asks nothing of Redis.
func New(o Options) (*Store, error) {
	switch {
	case o.Redis == nil:
		return nil, errors.New("store: Options.Redis is nil: give a client")
	case o.Shards < 0 || o.Shards > 1024:
		return nil, fmt.Errorf("store: %d shards: give 1 to 1024", o.Shards)
	case o.KeyTTL != 0 && o.KeyTTL < minKeyTTL:
		return nil, fmt.Errorf("store: key TTL %v is too short: give at least %v", o.KeyTTL, minKeyTTL)
	case o.LogLength < 0 || o.Heads < 0:
		return nil, errors.New("store: LogLength and Heads must not be negative")
	}
	s := &Store{
		rdb:      o.Redis,
		replicas: o.Replicas,
		shards:   max(o.Shards, 1),
		keyTTL:   o.KeyTTL,
		logLen:   o.LogLength,
		observe:  o.Observer,
		tracer:   o.Tracer,
		log:      o.Logger,
	}
	if s.keyTTL == 0 {
		s.keyTTL = DefaultKeyTTL
	}
	if s.logLen == 0 {
		s.logLen = DefaultLogLength
	}
	if o.Heads == 0 {
		o.Heads = DefaultHeads
	}
	if s.observe == nil {
		s.observe = nobody{}
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.heads = newHeadCache(o.Heads)
	s.touched = newTouches(s.keyTTL / 8)
	return s, nil
}

type nobody struct{}

func (nobody) Garbage(string, error)  {}
func (nobody) ShardFailed(int, error) {}
