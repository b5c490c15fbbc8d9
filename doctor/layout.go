package doctor

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/store"
)

// Layout is what stands in store.LayoutKey.
type Layout struct {
	// Present: the key exists and is a hash.
	Present bool
	// Foreign: the key exists and is no hash.
	Foreign         bool
	Version, Shards string
}

// ReadLayout reads the layout and writes none.
func ReadLayout(ctx context.Context, rdb redis.UniversalClient) (Layout, error) {
	v, err := rdb.HMGet(ctx, store.LayoutKey, "version", "shards").Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return Layout{Foreign: true}, nil
	}
	if err != nil || len(v) != 2 {
		return Layout{}, fmt.Errorf("reading %s: %w", store.LayoutKey, err)
	}
	l := Layout{}
	var ok [2]bool
	l.Version, ok[0] = v[0].(string)
	l.Shards, ok[1] = v[1].(string)
	l.Present = ok[0] || ok[1]
	return l, nil
}

// Readable is the number of shards if this version can read the index. An empty Redis
// has one, and nothing in it.
func (l Layout) Readable() (shards int, err error) {
	switch {
	case l.Foreign:
		return 0, fmt.Errorf("key %s is no hash, so another program wrote it: delete that key, or use another database", store.LayoutKey)
	case !l.Present:
		return 1, nil
	case l.Version != strconv.Itoa(store.LayoutVersion):
		return 0, fmt.Errorf("the index has layout version %q, this lookupctl reads version %d: use the lookupctl of the pods' release", l.Version, store.LayoutVersion)
	}
	shards, err = strconv.Atoi(l.Shards)
	if err != nil || shards < 1 || shards > 1024 {
		return 0, fmt.Errorf("key %s has %q for its number of shards, not 1 to 1024: another program wrote it", store.LayoutKey, l.Shards)
	}
	return shards, nil
}

// checkLayout looks at the layout and at what the catalog says of it.
func checkLayout(f *Facts, out *findings) {
	if f.Index == nil {
		return
	}
	const check = "layout"
	l := f.Index.Layout
	shards, err := l.Readable()
	switch {
	case err != nil:
		out.add(Fail, check, "", "the layout cannot be used: "+err.Error(),
			"Run components of one release on one database. To start over, give the tier an empty database: sidecars report again by themselves.",
			fmt.Sprintf("version %q, shards %q", l.Version, l.Shards))
		return
	case !l.Present && f.Index.Catalog.Total > 0:
		out.add(Fail, check, "", "the catalog has partitions, but the layout key is gone", "Start or restart one lookup pod with the --shards that the others use: it writes the key again. Find out who deletes keys: eviction, FLUSHDB, or another program.",
			fmt.Sprintf("%s does not exist; %d partitions", store.LayoutKey, f.Index.Catalog.Total))
		return
	case !l.Present:
		out.add(Warn, check, "", "nothing was ever written to this Redis", "Check that pods and sidecars use this very URL and database number, and that they run.", store.LayoutKey+" does not exist")
		return
	case f.Shards > 0 && f.Shards != shards:
		out.add(Fail, check, "", fmt.Sprintf("the index is laid out for %s, but components are started with --shards %d: they refuse to start", count(shards, "shard"), f.Shards),
			fmt.Sprintf("Start all components with --shards %d. To change the number, start all of them with the new one on an empty database.", shards),
			fmt.Sprintf("%s: shards %s", store.LayoutKey, l.Shards))
	default:
		out.ok(check, "", "version %s, %s", l.Version, count(shards, "shard"))
	}
	var beyond []string
	for i := range f.Index.Partitions {
		if p := &f.Index.Partitions[i]; p.Shard >= shards {
			beyond = append(beyond, p.String())
		}
	}
	if len(beyond) > 0 {
		out.add(Fail, "layout.shards", "", fmt.Sprintf("partitions stand beyond the %s of the layout: no lookup asks them", count(shards, "shard")),
			"Some component wrote with another number of shards, or the layout key was lost and written anew. Let all components restart with one --shards on an empty database.", beyond...)
	}
}

// Catalog is what the catalog lists.
type Catalog struct {
	// Partitions are sorted; at most as many as were asked for.
	Partitions []store.Partition
	// Total is how many there are.
	Total int64
	// Garbage has members that cannot be read.
	Garbage []string
}

// ListPartitions reads up to limit partitions of the catalog.
func ListPartitions(ctx context.Context, rdb redis.UniversalClient, limit int) (Catalog, error) {
	var members *redis.StringSliceCmd
	var total *redis.IntCmd
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		members = p.ZRange(ctx, store.CatalogPartitionsKey, 0, int64(limit-1))
		total = p.ZCard(ctx, store.CatalogPartitionsKey)
		return nil
	})
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return Catalog{Garbage: []string{store.CatalogPartitionsKey + " is no sorted set"}}, nil
	}
	if err != nil {
		return Catalog{}, fmt.Errorf("catalog: %w", err)
	}
	c := Catalog{Total: total.Val()}
	for _, m := range members.Val() {
		p, err := store.ParsePartitionMember(m)
		if err != nil {
			c.Garbage = append(c.Garbage, fmt.Sprintf("%s: %v", store.CatalogPartitionsKey, err))
			continue
		}
		c.Partitions = append(c.Partitions, p)
	}
	sort.Slice(c.Partitions, func(i, j int) bool {
		a, b := c.Partitions[i], c.Partitions[j]
		if n := strings.Compare(a.Tenant, b.Tenant); n != 0 {
			return n < 0
		}
		if n := strings.Compare(a.Model, b.Model); n != 0 {
			return n < 0
		}
		return a.Shard < b.Shard
	})
	return c, nil
}
