package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/ranking"
)

// State lists the replicas of a scope that reported stats, and counts the distinct
// prefix keys that somebody holds.
//
// Blocks of retired replicas stand in Redis until a sweep. If there may be some, the
// partition is swept first, so that the count is exact. What a replica holds whose lease
// has run out counts until a sweeper retires it: its sidecar may come back to it.
func (s *Store) State(ctx context.Context, scope ranking.Scope) (ranking.State, error) {
	var st ranking.State
	var keys []string                        // of blocks, all shards
	shardsOf := map[ranking.Space][]string{} // the same by space
	for shard := range s.shards {
		p := Partition{Scope: scope, Shard: shard}
		v, err := s.settled(ctx, p)
		if err != nil {
			return ranking.State{}, err
		}
		for id, rec := range v.Head.replicas {
			if rec.StatsMS != 0 && !rec.Lapsed(v.NowMS) {
				st.Replicas = append(st.Replicas, rec.Replica(id))
			}
		}
		for _, sp := range v.Head.Spaces {
			key := p.Keys().Blocks(SpaceSuffix(sp))
			keys = append(keys, key)
			shardsOf[sp] = append(shardsOf[sp], key)
		}
	}
	slices.SortFunc(st.Replicas, func(a, b ranking.Replica) int { return strings.Compare(a.ID, b.ID) })
	if len(keys) == 0 {
		return st, nil
	}
	lengths, err := s.lengths(ctx, keys)
	if err != nil {
		return ranking.State{}, fmt.Errorf("state of tenant %q model %q: %w", scope.Tenant, scope.Model, err)
	}
	for _, in := range shardsOf {
		n, err := s.distinct(ctx, in, lengths)
		if err != nil {
			return ranking.State{}, fmt.Errorf("state of tenant %q model %q: %w", scope.Tenant, scope.Model, err)
		}
		st.Prefixes += n
	}
	return st, nil
}

// settled reads a partition's head once no record of a retired replica is left in it.
func (s *Store) settled(ctx context.Context, p Partition) (View, error) {
	v, err := s.Read(ctx, p, ranking.Space{}, nil)
	if err != nil || !v.Head.Dirty {
		return v, err
	}
	if err := s.sweepNow(ctx, p); err != nil {
		return View{}, err
	}
	return s.Read(ctx, p, ranking.Space{}, nil)
}

// lengths of hashes; that of a foreign key is 0.
func (s *Store) lengths(ctx context.Context, keys []string) (map[string]int64, error) {
	cmds := make([]*redis.IntCmd, len(keys))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			cmds[i] = p.HLen(ctx, k)
		}
		return nil
	})
	lengths := make(map[string]int64, len(keys))
	for i, c := range cmds {
		if err := c.Err(); err != nil && !s.foreign(keys[i], err) {
			return nil, err
		}
		lengths[keys[i]] = c.Val()
	}
	return lengths, nil
}

// distinct counts the hashes of one space over its shards: those that stand in
// several count once, so they must be looked at unless one shard alone has any.
func (s *Store) distinct(ctx context.Context, keys []string, lengths map[string]int64) (int64, error) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return lengths[k] == 0 })
	switch len(keys) {
	case 0:
		return 0, nil
	case 1:
		return lengths[keys[0]], nil
	}
	hashes := map[string]struct{}{}
	for _, k := range keys {
		for cursor := uint64(0); ; {
			// Values come along; HSCAN NOVALUES is younger than Redis 7.0.
			fields, next, err := s.rdb.HScan(ctx, k, cursor, "", 1000).Result()
			if err != nil {
				return 0, err
			}
			for i := 0; i < len(fields); i += 2 {
				hashes[fields[i]] = struct{}{}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return int64(len(hashes)), nil
}
