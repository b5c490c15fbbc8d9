package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/cmd/internal/redisfiles"
	"inferencecache.io/lookuptier/doctor"
	"inferencecache.io/lookuptier/store"
)

// redisFlags name the index itself.
type redisFlags struct {
	Redis string           `placeholder:"URL" help:"Redis of the tier, as lookup pods are told of it: redis://host:port/db, rediss:// for TLS, several hosts for a Cluster, ?master_name= for Sentinel."`
	Files redisfiles.Flags `embed:""`
}

// dial makes the client; close it. It is read only by habit, not by force.
func (f *redisFlags) dial() (redis.UniversalClient, error) {
	files, err := f.Files.Open(f.Redis)
	if err != nil {
		return nil, usagef("%v", err)
	}
	o := store.DialOptions{URL: f.Redis, ClientName: "lookupctl", PoolSize: 8, MinIdleConns: -1}
	files.Apply(&o)
	rdb, err := store.Dial(o)
	if err != nil {
		return nil, usagef("--redis: %v", err)
	}
	return rdb, nil
}

// openIndex opens the index as it is laid out, without writing anything.
func (f *redisFlags) openIndex(ctx context.Context, rdb redis.UniversalClient, o store.Options) (*store.Store, int, error) {
	l, err := doctor.ReadLayout(ctx, rdb)
	if err != nil {
		return nil, 0, fmt.Errorf("--redis %s: %w; `lookupctl doctor --redis …` looks for the cause", store.Redacted(f.Redis), err)
	}
	shards, err := l.Readable()
	if err != nil {
		return nil, 0, fmt.Errorf("--redis %s: %w", store.Redacted(f.Redis), err)
	}
	o.Redis, o.Shards = rdb, shards
	index, err := store.New(o)
	return index, shards, err
}
