package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/store"
)

// gatherIndex reads the layout, the catalog, and the heads and some blocks of up to
// limits.Partitions partitions. It never scans keys.
func gatherIndex(ctx context.Context, rdb redis.UniversalClient, limits *Limits, gap func(string, ...any)) (*IndexFacts, error) {
	f := &IndexFacts{}
	var err error
	if f.Layout, err = ReadLayout(ctx, rdb); err != nil {
		return nil, err
	}
	if f.Catalog, err = ListPartitions(ctx, rdb, limits.Partitions); err != nil {
		return nil, err
	}
	if now, err := rdb.Time(ctx).Result(); err == nil {
		f.NowMS = now.UnixMilli()
	}
	if left := f.Catalog.Total - int64(len(f.Catalog.Partitions)+len(f.Catalog.Garbage)); left > 0 {
		gap("%d of %d partitions were not looked at: raise --max-partitions", left, f.Catalog.Total)
	}
	for i, p := range f.Catalog.Partitions {
		if ctx.Err() != nil {
			gap("time ran out: %d of %d partitions were not looked at", len(f.Catalog.Partitions)-i, f.Catalog.Total)
			break
		}
		f.Partitions = append(f.Partitions, readPartition(ctx, rdb, p, limits, gap))
	}
	return f, nil
}

// readPartition reads one partition in two round trips.
func readPartition(ctx context.Context, rdb redis.UniversalClient, p store.Partition, limits *Limits, gap func(string, ...any)) PartitionFacts {
	f := PartitionFacts{Partition: p, Replicas: map[string]store.ReplicaRecord{}}
	k := p.Keys()
	var head, spaces *redis.MapStringStringCmd
	var replicas, counts, logLen *redis.IntCmd
	var first *redis.XMessageSliceCmd
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		head, spaces = pipe.HGetAll(ctx, k.Head()), pipe.HGetAll(ctx, k.Spaces())
		replicas, counts = pipe.HLen(ctx, k.Replicas()), pipe.HLen(ctx, k.Serving())
		logLen, first = pipe.XLen(ctx, k.Log()), pipe.XRangeN(ctx, k.Log(), "-", "+", 1)
		return nil
	})
	if err != nil && !answered(err) {
		f.Err = err
		return f
	}
	f.note(k.Head(), head.Err())
	f.note(k.Spaces(), spaces.Err())
	f.note(k.Replicas(), replicas.Err())
	f.note(k.Serving(), counts.Err())
	f.note(k.Log(), logLen.Err())
	h := head.Val()
	f.Dirty = h["d"] != ""
	f.SweptMS, _ = strconv.ParseInt(h["s"], 10, 64) // absent = never
	f.LogLen = logLen.Val()
	if msgs := first.Val(); len(msgs) > 0 {
		ms, _, _ := strings.Cut(msgs[0].ID, "-")
		f.LogFirstMS, _ = strconv.ParseInt(ms, 10, 64)
	}
	f.readSpaces(spaces.Val(), limits, gap)
	f.readRest(ctx, rdb, replicas.Val(), counts.Val(), limits, gap)
	return f
}

// note keeps an error that a key is at fault for.
func (f *PartitionFacts) note(key string, err error) {
	if err != nil && answered(err) {
		f.Garbage = append(f.Garbage, fmt.Sprintf("key %s: %v", key, err))
	}
}

func (f *PartitionFacts) readSpaces(fields map[string]string, limits *Limits, gap func(string, ...any)) {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[field]
		sp, err := store.ParseSpaceField(field)
		index, indexErr := strconv.ParseUint(raw, 10, 16)
		switch {
		case err != nil:
			f.Garbage = append(f.Garbage, fmt.Sprintf("key %s: %v", f.Keys().Spaces(), err))
		case indexErr != nil:
			f.Garbage = append(f.Garbage, fmt.Sprintf("key %s: index %q of scheme %q", f.Keys().Spaces(), raw, sp.Scheme))
		case len(f.Spaces) >= limits.Spaces:
			gap("%s: only %d of %d spaces were looked at", f.Partition, limits.Spaces, len(fields))
			return
		default:
			f.Spaces = append(f.Spaces, SpaceFacts{Space: sp, Index: uint16(index)})
		}
	}
}

// readRest reads the replicas and counts if there are not too many, and samples blocks.
func (f *PartitionFacts) readRest(ctx context.Context, rdb redis.UniversalClient, replicas, counts int64, limits *Limits, gap func(string, ...any)) {
	k := f.Keys()
	var r, c *redis.MapStringStringCmd
	sizes := make([]*redis.IntCmd, len(f.Spaces))
	blocks := make([]*redis.KeyValueSliceCmd, len(f.Spaces))
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		if replicas <= int64(limits.Replicas) {
			r = pipe.HGetAll(ctx, k.Replicas())
		} else {
			gap("%s: %d replicas are too many to look at", f.Partition, replicas)
		}
		if counts <= int64(8*limits.Replicas) {
			c = pipe.HGetAll(ctx, k.Serving())
		}
		for i := range f.Spaces {
			key := k.Blocks(store.SpaceSuffix(f.Spaces[i].Space))
			sizes[i] = pipe.HLen(ctx, key)
			blocks[i] = pipe.HRandFieldWithValues(ctx, key, limits.Samples)
		}
		return nil
	})
	if err != nil && !answered(err) {
		f.Err = err
		return
	}
	if r != nil {
		f.readReplicas(r.Val())
	}
	if c != nil {
		f.readCounts(c.Val())
	}
	for i := range f.Spaces {
		sp := &f.Spaces[i]
		f.note(k.Blocks(store.SpaceSuffix(sp.Space)), sizes[i].Err())
		sp.Blocks = sizes[i].Val()
		sampled := blocks[i].Val()
		if redis.HasErrorPrefix(blocks[i].Err(), "NOPERM") {
			sampled = firstFields(ctx, rdb, k.Blocks(store.SpaceSuffix(sp.Space)), limits.Samples)
		}
		for _, kv := range sampled {
			holds, err := store.DecodeHolds(nil, kv.Value)
			if err != nil {
				f.Garbage = append(f.Garbage, fmt.Sprintf("key %s field %x: %v", k.Blocks(store.SpaceSuffix(sp.Space)), kv.Key, err))
				continue
			}
			sp.Samples = append(sp.Samples, holds)
		}
	}
}

func (f *PartitionFacts) readReplicas(fields map[string]string) {
	for _, id := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[id]
		rec, err := store.DecodeReplica(raw)
		if err != nil {
			f.Garbage = append(f.Garbage, fmt.Sprintf("key %s replica %q: %v", f.Keys().Replicas(), id, err))
			continue
		}
		f.Replicas[id] = rec
	}
}

func (f *PartitionFacts) readCounts(fields map[string]string) {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[field]
		scheme, number, err := store.ParseCountField(field)
		n, numErr := strconv.ParseInt(raw, 10, 64)
		if err != nil || numErr != nil || n <= 0 {
			f.Garbage = append(f.Garbage, fmt.Sprintf("key %s field %x has count %q", f.Keys().Serving(), field, raw))
			continue
		}
		f.Counts = append(f.Counts, Count{Scheme: scheme, Number: number, Holds: n})
	}
}

// firstFields is the sample for a user who may not run HRANDFIELD: one step of a scan,
// which is not random, but as good as any for blocks named by hashes.
func firstFields(ctx context.Context, rdb redis.UniversalClient, key string, n int) (out []redis.KeyValue) {
	fields, _, err := rdb.HScan(ctx, key, 0, "", int64(n)).Result()
	if err != nil {
		return nil
	}
	for i := 0; i+1 < len(fields) && len(out) < n; i += 2 {
		out = append(out, redis.KeyValue{Key: fields[i], Value: fields[i+1]})
	}
	return out
}
