package lookupsvc

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

const (
	// DefaultBlockSize is how many token ids make a block.
	DefaultBlockSize = 16
	// DefaultLookupTimeout bounds a lookup that neither its caller nor its
	// tenant's policy bounds more tightly.
	DefaultLookupTimeout = 100 * time.Millisecond
)

// Options of a Service.
type Options struct {
	// Index holds the data. Required.
	Index Index
	// Policy returns the policy of a tenant, the default one for a tenant without
	// a policy of its own; never nil. It is called once a lookup and must not
	// block. nil = the default policy for everyone.
	Policy func(tenant string) *ranking.Policy
	// Knobs of the score. The zero value switches all of them off; see
	// ranking.DefaultKnobs.
	Knobs ranking.Knobs
	// BlockSize is how many token ids of a request make a block, 1 to MaxTokenIDs;
	// 0 = DefaultBlockSize. It must be the engines' own.
	BlockSize int
	// LookupTimeout bounds every lookup; 0 = DefaultLookupTimeout.
	LookupTimeout time.Duration
	// Metrics gets the service's metrics; nil = they are kept and not exported.
	Metrics prometheus.Registerer
	// Changes is followed by StreamCacheEvents; nil = the call is UNIMPLEMENTED.
	Changes Changes
	// Gatherer is read by StreamMetrics; nil = the call is UNIMPLEMENTED.
	Gatherer prometheus.Gatherer
	// Tracer hears of the lookups that are traced; nil = nobody does.
	Tracer Tracer
	// Models bounds the distinct values of the model label; 0 = DefaultModels.
	Models int
	// Log gets one line for each kind of trouble, a few at first and then one a
	// second; nil = no log.
	Log *slog.Logger
}

// Service implements the InferenceCache service on an Index. It has no state that
// matters and needs no stop. New makes one.
type Service struct {
	pb.UnimplementedInferenceCacheServer

	index     Index
	policy    func(tenant string) *ranking.Policy
	knobs     ranking.Knobs
	blockSize int
	timeout   time.Duration
	metrics   *metrics
	sampler   *sampler
	tracer    Tracer
	streams   *streams
	// left counts calls of the index that lookups have given up on.
	left atomic.Int64
}

// New checks the options and registers the metrics.
func New(o Options) (*Service, error) {
	if o.Index == nil {
		return nil, errors.New("lookupsvc: Options.Index is required")
	}
	if o.BlockSize < 0 || o.BlockSize > MaxTokenIDs {
		return nil, fmt.Errorf("lookupsvc: a block of %d tokens is not possible; 1 to %d are", o.BlockSize, MaxTokenIDs)
	}
	if o.LookupTimeout < 0 {
		return nil, fmt.Errorf("lookupsvc: a lookup timeout of %v is not possible; give more than 0", o.LookupTimeout)
	}
	if o.Policy == nil {
		policy := ranking.DefaultPolicy()
		o.Policy = func(string) *ranking.Policy { return &policy }
	}
	if o.BlockSize == 0 {
		o.BlockSize = DefaultBlockSize
	}
	if o.LookupTimeout == 0 {
		o.LookupTimeout = DefaultLookupTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		index:     o.Index,
		policy:    o.Policy,
		knobs:     o.Knobs,
		blockSize: o.BlockSize,
		timeout:   o.LookupTimeout,
		sampler:   newSampler(o.Log),
		tracer:    o.Tracer,
	}
	r := registrar{reg: o.Metrics}
	s.streams = newStreams(&o, &r)
	m, err := newMetrics(&r, o.Models, &s.left)
	if err != nil {
		return nil, fmt.Errorf("lookupsvc: registering metrics: %w", err)
	}
	s.metrics = m
	return s, nil
}
