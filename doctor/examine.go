package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"inferencecache.io/lookuptier/policies"
)

// Limits bound what is read of the index. A zero field takes its default.
type Limits struct {
	Partitions int // 256
	Replicas   int // of a partition; 4096
	Spaces     int // of a partition; 64
	Samples    int // blocks of a space; 128
}

// Options says what to examine. What is left out is not looked at.
type Options struct {
	// Redis is a client of the index, RedisName its URL without secrets. The caller closes it.
	Redis     redis.UniversalClient
	RedisName string
	// ACLUser is the Redis user whose rights are judged; "" = the client's own.
	ACLUser string
	// Pods and Sidecars are HTTP addresses, GRPC those of lookup pods' gRPC ports.
	Pods, GRPC, Sidecars []string
	PolicyDir            string
	// Shards that components were started with; 0 = not compared.
	Shards int
	// SweepInterval and KeyTTL of the pods; 0 = their defaults, 1 min and 24 h.
	SweepInterval, KeyTTL time.Duration
	Limits                Limits
	// Dial are the options of connections to GRPC; nil = plaintext.
	Dial []grpc.DialOption
	// HTTP is the client for pods and sidecars; nil = http.DefaultClient.
	HTTP *http.Client
	// Now is this machine's clock; nil = time.Now.
	Now func() time.Time
}

// Examine gathers facts until ctx ends and judges what it got by then. An error means
// that there was nothing to look at.
func Examine(ctx context.Context, o Options) (*Report, error) {
	facts, err := Gather(ctx, o)
	if err != nil {
		return nil, err
	}
	return Judge(facts), nil
}

// Gather asks everything at once.
func Gather(ctx context.Context, o Options) (*Facts, error) {
	if o.Redis == nil && len(o.Pods)+len(o.GRPC)+len(o.Sidecars) == 0 && o.PolicyDir == "" {
		return nil, errors.New("doctor: nothing to examine")
	}
	o.defaults()
	f := &Facts{SweepInterval: o.SweepInterval, KeyTTL: o.KeyTTL, Shards: o.Shards}
	var mu sync.Mutex
	gap := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		f.Gaps = append(f.Gaps, fmt.Sprintf(format, args...))
	}
	var all sync.WaitGroup
	if o.Redis != nil {
		all.Go(func() {
			f.Redis = gatherRedis(ctx, o.Redis, o.RedisName, o.ACLUser, o.Now)
			if f.Redis.Err != nil {
				return
			}
			index, err := gatherIndex(ctx, o.Redis, &o.Limits, gap)
			if err != nil {
				gap("the index could not be read: %v", err)
				return
			}
			f.Index = index
		})
	}
	all.Go(func() { f.Pods = gatherPods(ctx, o.HTTP, o.Pods) })
	all.Go(func() { f.Sidecars = gatherSidecars(ctx, o.HTTP, o.Sidecars) })
	all.Go(func() { f.GRPC = gatherGRPC(ctx, o.GRPC, o.Dial) })
	if o.PolicyDir != "" {
		all.Go(func() { f.Policies = gatherPolicies(o.PolicyDir) })
	}
	all.Wait()
	return f, nil
}

func (o *Options) defaults() {
	set(&o.Limits.Partitions, 256)
	set(&o.Limits.Replicas, 4096)
	set(&o.Limits.Spaces, 64)
	set(&o.Limits.Samples, 128)
	set(&o.SweepInterval, time.Minute)
	set(&o.KeyTTL, 24*time.Hour)
	if o.Dial == nil {
		o.Dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

func set[T comparable](v *T, standard T) {
	var zero T
	if *v == zero {
		*v = standard
	}
}

// Judge runs every check. It asks nobody anything.
func Judge(f *Facts) *Report {
	if f.Policies != nil && f.Policies.Set == nil {
		f.Policies.Set = (*policies.Set)(nil)
	}
	out := &findings{}
	for _, check := range []func(*Facts, *findings){
		checkRedis, checkRoles, checkLayout, checkPartitions, checkSweeper, checkProducers, checkNames, checkPolicies,
		checkPods, checkGRPC, checkSidecars,
	} {
		check(f, out)
	}
	if len(f.Gaps) > 0 {
		out.add(Warn, "doctor.gaps", "", "not everything was looked at", "Give it longer with --within, or raise the bound that is named.", f.Gaps...)
	}
	return out.report()
}
