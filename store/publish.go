package store

import (
	"context"
	"fmt"
	"slices"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
)

// Publish applies a change that is not a hold. It can be sent again after an error.
func (s *Store) Publish(ctx context.Context, e *ranking.Event) error {
	switch e.Kind {
	case ranking.EventEvicted:
		return s.evictEverywhere(ctx, e)
	case ranking.EventCleared:
		return s.Retire(ctx, e.Scope, e.Replica)
	case ranking.EventAlive:
		b := s.Batch(e.Scope, e.Replica)
		b.add(scripts.Alive(b.about(e.AtMS)), (*scripts.Call).StatsWritten)
		_, err := b.Send(ctx)
		return err
	default:
		return fmt.Errorf("store: event kind %d is unknown", e.Kind)
	}
}

// Retire forgets all that is known of the replica: its holds are dead for every
// reader at once, whatever their number, its stats and lease are gone, and its next
// report gives it a new number.
func (s *Store) Retire(ctx context.Context, scope ranking.Scope, replica string) error {
	p := Partition{Scope: scope, Shard: ShardOf(replica, s.shards)}
	keys := p.Keys().script()
	call := scripts.Clear(&keys, s.upkeep(), replica)
	if err := scripts.Run(ctx, s.rdb, call); err != nil {
		return fmt.Errorf("retire %q of %v: %w", replica, p, err)
	}
	r, err := call.Cleared()
	if err != nil {
		return fmt.Errorf("retire %q of %v: %w", replica, p, err)
	}
	if r.Number == 0 {
		return nil
	}
	return s.catalogued(ctx, p, r.Empty)
}

const (
	// evictTries bounds how often an eviction starts over because spaces came and went.
	evictTries = 8
	// evictSpaces bounds the keys of one eviction.
	evictSpaces = 500
)

// evictEverywhere removes one hash from every space of the scope, or from every one of
// the event's adapter. A script may touch declared keys only, so it is told the spaces,
// and says so if there are others by now: a report may have added one meanwhile.
func (s *Store) evictEverywhere(ctx context.Context, e *ranking.Event) error {
	p := Partition{Scope: e.Scope, Shard: ShardOf(e.Replica, s.shards)}
	k := p.Keys()
	var fields []string
	if h := s.heads.get(k.base); h != nil {
		for _, sp := range h.Spaces {
			fields = append(fields, SpaceField(sp))
		}
	}
	for range evictTries {
		calls := evictCalls(k, s.upkeep(), e, fields)
		if err := scripts.Run(ctx, s.rdb, calls...); err != nil {
			return fmt.Errorf("evict from %v: %w", p, err)
		}
		stale, emptied := false, false
		for _, c := range calls {
			r, err := c.Evicted()
			if err != nil {
				return fmt.Errorf("evict from %v: %w", p, err)
			}
			if r.Stale {
				stale = true
				fields = r.Spaces
			}
			emptied = emptied || r.Empty && r.Removed > 0
		}
		if emptied {
			if err := s.catalogued(ctx, p, true); err != nil {
				return err
			}
		}
		if !stale {
			return nil
		}
	}
	return fmt.Errorf("evict from %v: the partition's spaces changed %d times meanwhile: try again", p, evictTries)
}

// evictCalls are the calls of one try, given the fields of all spaces: more than one
// only if there are very many. A field that cannot be read names no space to evict from.
func evictCalls(k Keys, u scripts.Upkeep, e *ranking.Event, all []string) []*scripts.Call {
	var blocks, fields, others []string
	for _, f := range all {
		if sp, err := ParseSpaceField(f); err == nil && (e.Adapter == "" || sp.Adapter == e.Adapter) {
			blocks = append(blocks, k.Blocks(SpaceSuffix(sp)))
			fields = append(fields, f)
		} else {
			others = append(others, f)
		}
	}
	var calls []*scripts.Call
	for from := 0; from == 0 || from < len(blocks); from += evictSpaces {
		to := min(from+evictSpaces, len(blocks))
		calls = append(calls, scripts.Evict(&scripts.EvictArgs{
			Partition: k.script(), Upkeep: u, Replica: e.Replica, At: stamp(e.AtMS),
			Blocks: blocks[from:to], Fields: fields[from:to],
			All: true, Others: slices.Concat(others, fields[:from], fields[to:]),
			Hashes: [][]byte{e.Hash},
		}))
	}
	return calls
}
