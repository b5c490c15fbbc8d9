package store

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
)

// dataTTL is how long a key of a partition lives from its last write.
func (s *Store) dataTTL() time.Duration { return 2 * s.keyTTL }

// catalogued keeps the catalog true after a write to p. turned says that the
// script's reply tells of p going from no hold to some or from some to none; then
// the catalog must follow. Otherwise it is renewed if this process has not done so lately.
//
// The catalog lies in another slot than the partition, so that no script changes
// both. An error leaves the entry due, and the next write or sweep mends it.
func (s *Store) catalogued(ctx context.Context, p Partition, turned bool) error {
	tag := p.Keys().Tag()
	if !s.touched.claim(tag, time.Now()) && !turned {
		return nil
	}
	err := s.settle(ctx, p)
	if err != nil {
		s.touched.forget(tag)
		return err
	}
	return s.renewLayout(ctx)
}

// renewLayout keeps the layout key from running out where sidecars write and no
// lookup pod sweeps.
func (s *Store) renewLayout(ctx context.Context) error {
	if !s.touched.claim(LayoutKey, time.Now()) {
		return nil
	}
	err := s.CheckLayout(ctx)
	if err != nil {
		s.touched.forget(LayoutKey)
	}
	return err
}

// settle writes what p has into the catalog, and looks again until both agree.
//
// Why this ends right: whoever turns p from empty to filled or back calls settle
// after that. Take the last catalog write of all. The look after it saw p as it was
// written, or there would have been another write. If p had turned after that look,
// the one who turned it would have written the catalog later still. So p has not
// turned, and the catalog is true.
//
// Why it ends at all: each further round is caused by somebody turning p meanwhile.
func (s *Store) settle(ctx context.Context, p Partition) error {
	has, err := s.has(ctx, p)
	for err == nil {
		if err = s.file(ctx, p, has); err != nil {
			break
		}
		before := has
		if has, err = s.has(ctx, p); err == nil && has == before {
			return nil
		}
	}
	return fmt.Errorf("catalog entry of %s: %w", p, err)
}

// has looks at what a partition has. The two looks need not be one: a partition that
// changes between them is looked at again by who changed it.
func (s *Store) has(ctx context.Context, p Partition) (scripts.Has, error) {
	k := p.Keys()
	var holds, rows *redis.IntCmd
	_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		holds = pipe.Exists(ctx, k.Serving())
		rows = pipe.Exists(ctx, k.Replicas(), k.Spaces())
		return nil
	})
	switch {
	case err != nil:
		return scripts.HasNothing, err
	case holds.Val() > 0:
		return scripts.HasHolds, nil
	case rows.Val() > 0:
		return scripts.HasRows, nil
	default:
		return scripts.HasNothing, nil
	}
}

func (s *Store) file(ctx context.Context, p Partition, has scripts.Has) error {
	return scripts.Run(ctx, s.rdb, scripts.CatalogFile(catalogKeys(p.Tenant), scripts.CatalogEntry{
		Tenant:          p.Tenant,
		Member:          CatalogMember(p.Model, p.Shard),
		PartitionMember: PartitionMember(p),
	}, has, s.dataTTL()))
}

func catalogKeys(tenant string) scripts.CatalogKeys {
	return scripts.CatalogKeys{
		Tenants:    CatalogTenantsKey,
		Tenant:     CatalogTenantKey(tenant),
		Partitions: CatalogPartitionsKey,
	}
}

// census tells why nothing serves a domain of the scope: the first of index, tenant
// and model that holds nothing, else CensusSchemeEmpty.
func (s *Store) census(ctx context.Context, scope ranking.Scope) (ranking.Census, error) {
	members := make([]string, s.shards)
	for i := range members {
		members[i] = CatalogMember(scope.Model, i)
	}
	call := scripts.CatalogCensus(catalogKeys(scope.Tenant), members)
	if err := scripts.Run(ctx, s.rdb, call); err != nil {
		return ranking.CensusKnown, fmt.Errorf("census: %w", err)
	}
	known, err := call.Counted()
	if err != nil {
		return ranking.CensusKnown, fmt.Errorf("census: %w", err)
	}
	switch known {
	case scripts.CensusIndexEmpty:
		return ranking.CensusIndexEmpty, nil
	case scripts.CensusTenantEmpty:
		return ranking.CensusTenantEmpty, nil
	case scripts.CensusModelEmpty:
		return ranking.CensusModelEmpty, nil
	default:
		return ranking.CensusSchemeEmpty, nil
	}
}

// Partitions lists what the catalog knows, sorted: every partition that has holds,
// stats or something left to sweep. A partition that expired from Redis may still
// stand here until the next sweep.
func (s *Store) Partitions(ctx context.Context) ([]Partition, error) {
	members, err := s.rdb.ZRange(ctx, CatalogPartitionsKey, 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("catalog: key %s: %w", CatalogPartitionsKey, err)
	}
	list := make([]Partition, 0, len(members))
	for _, m := range members {
		p, err := ParsePartitionMember(m)
		if err != nil {
			s.observe.Garbage("catalog", fmt.Errorf("%w: key %s: %w", ErrGarbage, CatalogPartitionsKey, err))
			continue
		}
		list = append(list, p)
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if a.Tenant != b.Tenant {
			return a.Tenant < b.Tenant
		}
		if a.Model != b.Model {
			return a.Model < b.Model
		}
		return a.Shard < b.Shard
	})
	return list, nil
}

// entriesBatch is how many partitions Entries asks for in one round trip.
const entriesBatch = 256

// Entries counts the prefixes of each model in all partitions of the catalog, for
// gauges: a prefix that is held in several shards counts in each, and one that only
// dead or expired records name counts until the next sweep. A key of a foreign type
// counts nothing.
func (s *Store) Entries(ctx context.Context) (map[string]int64, error) {
	list, err := s.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]int64)
	for len(list) > 0 {
		n := min(len(list), entriesBatch)
		if err := s.countEntries(ctx, list[:n], entries); err != nil {
			return nil, fmt.Errorf("counting entries: %w", err)
		}
		list = list[n:]
	}
	return entries, nil
}

func (s *Store) countEntries(ctx context.Context, list []Partition, entries map[string]int64) error {
	// The error of a pipeline is its first command's: each is looked at by itself.
	spaces := make([]*redis.StringSliceCmd, len(list))
	_, _ = s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, p := range list {
			spaces[i] = pipe.HKeys(ctx, p.Keys().Spaces())
		}
		return nil
	})
	type size struct {
		model, key string
	}
	var sizes []size
	for i, p := range list {
		if err := spaces[i].Err(); err != nil && !s.foreign(p.Keys().Spaces(), err) {
			return err
		}
		entries[p.Model] += 0
		for _, field := range spaces[i].Val() {
			if sp, err := ParseSpaceField(field); err == nil {
				sizes = append(sizes, size{p.Model, p.Keys().Blocks(SpaceSuffix(sp))})
			}
		}
	}
	keys := make([]string, len(sizes))
	for i, z := range sizes {
		keys[i] = z.key
	}
	lengths, err := s.lengths(ctx, keys)
	if err != nil {
		return err
	}
	for _, z := range sizes {
		entries[z.model] += lengths[z.key]
	}
	return nil
}
