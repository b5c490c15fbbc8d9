package chaincache

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"inferencecache.io/lookuptier/ranking"
)

// MinBytes is the smallest memory that a Cache works with.
const MinBytes = 1 << 20

// Cache is the memory that partitions share. It is safe for concurrent use.
type Cache struct {
	max   int64
	seed  maphash.Seed
	bytes atomic.Int64

	// mu is the writers': fills, changes, evictions and splits of all partitions.
	mu       sync.Mutex
	ids      uint64
	recent   queue // segments that came in and were not wanted again yet
	kept     queue // segments that were
	departed ghosts
	blocks   atomic.Int64
	work     []pending // scratch of Apply

	hits, misses, retries, evicted, refused atomic.Uint64
}

// New makes a Cache that holds at most bound bytes by its own account, which
// covers blocks, holds, segments and tables and is within a fifth of what the
// runtime says. A bound below MinBytes is an error.
func New(bound int64) (*Cache, error) {
	if bound < MinBytes {
		return nil, fmt.Errorf("chaincache: %d bytes are too few to be of use: give at least %d", bound, MinBytes)
	}
	return &Cache{max: bound, seed: maphash.MakeSeed(), departed: newGhosts(bound)}, nil
}

// Stats is what happened in a Cache so far; Bytes and Blocks are of now.
type Stats struct {
	Bytes, MaxBytes, Blocks int64
	// Hits counts lookups answered whole, Misses those that were not. Retries counts
	// looks that met a change; Evicted segments dropped for room; Refused fills that
	// came too late, too early or found no room.
	Hits, Misses, Retries, Evicted, Refused uint64
}

// Stats reads the counters.
func (c *Cache) Stats() Stats {
	return Stats{
		Bytes: c.bytes.Load(), MaxBytes: c.max, Blocks: c.blocks.Load(),
		Hits: c.hits.Load(), Misses: c.misses.Load(), Retries: c.retries.Load(),
		Evicted: c.evicted.Load(), Refused: c.refused.Load(),
	}
}

// nextID is for spaces and stems. The caller holds mu.
func (c *Cache) nextID() uint64 {
	c.ids++
	return c.ids
}

func (c *Cache) newStem() *stem { return &stem{id: c.nextID()} }

const (
	spreadSpaces = 0x9E3779B97F4A7C15
	spreadStems  = 0xD6E8FEB86659FD93
)

func (c *Cache) hash(key []byte) uint64 { return maphash.Bytes(c.seed, key) }

func blockHash(c *Cache, sp *space, key []byte) uint64 { return c.hash(key) ^ sp.id*spreadSpaces }

func edgeHash(c *Cache, up *stem, key []byte) uint64 { return c.hash(key) ^ up.id*spreadStems }

func (c *Cache) spaceHash(name ranking.Space) uint64 {
	return maphash.String(c.seed, name.Scheme)*spreadStems ^ maphash.String(c.seed, name.Adapter)
}
