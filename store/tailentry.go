package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/ranking"
)

// tailedEntry is a log entry with the time that its id tells.
type tailedEntry struct {
	LogEntry
	atMS int64
}

// deliver tells what one batch of a log changed. Entries name replicas and spaces by
// numbers, which the head, other entries and, for a replica that was cleared since,
// later entries explain.
func (t *tail) deliver(ctx context.Context, l *tailedLog, batch []redis.XMessage) error {
	if len(batch) == 0 {
		return nil
	}
	entries, err := t.decode(l, batch, nil)
	if err != nil {
		return err
	}
	if l.lacks(entries) {
		v, err := t.s.walk(ctx, t.s.rdb, l.p, ranking.Space{}, nil)
		if err != nil {
			t.s.log.Debug("a change is told without its head", "partition", l.p.String(), "error", err)
		} else {
			l.learn(v.Head)
		}
	}
	if l.lacks(entries) {
		next, err := t.readLogs(ctx, []*tailedLog{l})
		if err == nil && len(next[0]) > 0 {
			if entries, err = t.decode(l, next[0], entries); err != nil {
				return err
			}
		}
	}
	for i := range entries {
		if err := t.tell(l, &entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// decode appends a batch, moves the log's position and learns names on the way.
func (t *tail) decode(l *tailedLog, batch []redis.XMessage, entries []tailedEntry) ([]tailedEntry, error) {
	for i := range batch {
		at, err := parsePosition(batch[i].ID)
		if err != nil {
			return nil, err
		}
		blob, _ := batch[i].Values[LogField].(string)
		e, err := DecodeLog([]byte(blob))
		if err != nil {
			t.s.observe.Garbage("log", fmt.Errorf("%v entry %s: %w", l.p, batch[i].ID, err))
			return nil, fmt.Errorf("%w: %v: entry %s cannot be read", ranking.ErrChangesMissed, l.p, batch[i].ID)
		}
		prev, err := parsePosition(e.Prev)
		if err != nil || (l.exact && prev != l.pos) || prev.Compare(l.pos) > 0 {
			return nil, fmt.Errorf("%w: the log of %v moved on to %s", ranking.ErrChangesMissed, l.p, batch[i].ID)
		}
		l.pos, l.exact = at, true
		if e.Op == OpClear || e.Op == OpStats {
			l.names[e.Number] = e.Replica
		}
		entries = append(entries, tailedEntry{e, int64(at.MS)})
	}
	return entries, nil
}

// lacks tells whether some entry means a replica or a space that is not known.
func (l *tailedLog) lacks(entries []tailedEntry) bool {
	for i := range entries {
		e := &entries[i]
		switch e.Op {
		case OpReport:
			if l.names[e.Number] == "" || !l.knows(e.Space) {
				return true
			}
		case OpEvict:
			if l.names[e.Number] == "" {
				return true
			}
			for _, sp := range e.Spaces {
				if !l.knows(sp) {
					return true
				}
			}
		default: // what it means, it names
		}
	}
	return false
}

func (l *tailedLog) knows(space string) bool {
	_, ok := l.adapters[space]
	return ok
}

// mostNames is how many generations of replicas are remembered beyond those of the head.
const mostNames = 4096

func (l *tailedLog) learn(h *Head) {
	if len(l.names) > len(h.replicas)+mostNames {
		clear(l.names)
	}
	for id, rec := range h.replicas {
		l.names[rec.Number] = id
	}
	for _, sp := range h.Spaces {
		l.adapters[SpaceSuffix(sp)] = sp.Adapter
	}
}

func (t *tail) tell(l *tailedLog, e *tailedEntry) error {
	c := ranking.Change{Scope: l.p.Scope, Replica: l.names[e.Number], AtMS: e.atMS}
	switch e.Op {
	case OpReport:
		c.Kind, c.Adapter = ranking.ChangeAdded, l.adapters[e.Space]
		c.Hashes = make([][]byte, len(e.Holds))
		for i := range e.Holds {
			c.Hashes[i] = e.Holds[i].Hash
		}
	case OpEvict:
		c.Kind, c.Adapter, c.Hashes = ranking.ChangeEvicted, l.onlyAdapter(e.Spaces), e.Hashes
	case OpClear:
		c.Kind, c.Replica = ranking.ChangeCleared, e.Replica
	case OpStats:
		c.Kind, c.Replica = ranking.ChangeUpdated, e.Replica
	default:
		return nil
	}
	if !t.filter.PassesKind(c.Kind) {
		return nil
	}
	if c.Replica == "" {
		// It was forgotten by Redis before anybody could ask who it was.
		t.s.log.Debug("a change of a forgotten replica is not told", "partition", l.p.String(), "number", e.Number)
		return nil
	}
	return t.take(&c)
}

// onlyAdapter is the adapter that all of the spaces are for, "" if they differ: an
// eviction names either one adapter's spaces or all that the replica was in.
func (l *tailedLog) onlyAdapter(spaces []string) string {
	if len(spaces) == 0 {
		return ""
	}
	only := l.adapters[spaces[0]]
	for _, sp := range spaces[1:] {
		if l.adapters[sp] != only {
			return ""
		}
	}
	return only
}
