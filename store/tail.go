package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store/chaincache"
)

const (
	// tailPace is how often a tail looks for news, tailPacePer how much longer it waits
	// for each log: looking at a log costs Redis a few microseconds.
	tailPace    = 25 * time.Millisecond
	tailPacePer = 50 * time.Microsecond
	// tailDiscover is how often the catalog is asked for partitions that are new. Their
	// changes come late by that much, but they come; only of a partition that came and
	// was empty again in between nothing is told, for the catalog has no memory.
	tailDiscover = 250 * time.Millisecond
	// tailPatience is how long Redis may be away before a tail gives up.
	tailPatience = 10 * time.Second
	// tailAtOnce bounds the logs that are read in one round trip, tailCount the entries
	// of each: 500 hashes an entry at most, so some ten megabytes for a stream at worst.
	tailAtOnce, tailCount = 32, 64
)

// Follow hands every change that f lets pass to take, until ctx ends, which is no
// error, or take returns an error, which Follow returns. Changes of one partition come
// in their order; what changes after the call of started is not missed, except that
// without both names in f a partition that is new and soon empty again may be. It reads the
// logs of Redis and needs no Cached.
//
// Nothing is buffered here: while take takes its time, the logs wait in Redis, and they
// are bounded. A log that moved on without the tail is ranking.ErrChangesMissed.
func (s *Store) Follow(ctx context.Context, f *ranking.ChangeFilter, started func(), take func(*ranking.Change) error) error {
	t := &tail{s: s, filter: f, take: take, logs: map[Partition]*tailedLog{}}
	err := t.open(ctx)
	if err == nil {
		started()
		err = t.run(ctx)
	}
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// tail is one Follow at work.
type tail struct {
	s      *Store
	filter *ranking.ChangeFilter
	take   func(*ranking.Change) error
	logs   map[Partition]*tailedLog
	// since is the position before which nothing is told, of logs that are found later.
	since chaincache.Position
}

// tailedLog is one partition's log, and what its numbers and spaces stand for.
type tailedLog struct {
	p    Partition
	keys Keys
	pos  chaincache.Position
	// exact: pos is an entry's id, and the next entry must name it.
	exact bool
	// unreadable: this is no log, and the tail goes on without it.
	unreadable bool

	names    map[uint32]string
	adapters map[string]string
}

func (t *tail) open(ctx context.Context) error {
	now, err := t.s.rdb.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	t.since = chaincache.Position{MS: uint64(max(now.UnixMilli()-1, 0)), Seq: math.MaxUint64}
	list, err := t.partitions(ctx)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	for _, p := range list {
		t.add(p, chaincache.Position{}, true)
	}
	return t.ends(ctx, func(l *tailedLog, end chaincache.Position) error {
		l.pos = end
		return nil
	})
}

func (t *tail) add(p Partition, pos chaincache.Position, exact bool) {
	t.logs[p] = &tailedLog{p: p, keys: p.Keys(), pos: pos, exact: exact, names: map[uint32]string{}, adapters: map[string]string{}}
}

// partitions that the filter lets pass. With both names given nothing is to be
// discovered: a partition that does not exist yet can be followed.
func (t *tail) partitions(ctx context.Context) ([]Partition, error) {
	if t.filter.Tenant != "" && t.filter.Model != "" {
		list := make([]Partition, t.s.shards)
		for i := range list {
			list[i] = Partition{Scope: t.filter.Scope, Shard: i}
		}
		return list, nil
	}
	list, err := t.s.Partitions(ctx)
	return slices.DeleteFunc(list, func(p Partition) bool { return !t.filter.PassesScope(p.Scope) }), err
}

func (t *tail) run(ctx context.Context) error {
	looked, well := time.Now(), time.Now()
	for ctx.Err() == nil {
		more, err := t.read(ctx)
		if err == nil && time.Since(looked) >= tailDiscover {
			looked = time.Now()
			err = t.discover(ctx)
		}
		switch away := (*awayError)(nil); {
		case err == nil:
			well = time.Now()
		case !errors.As(err, &away):
			return err
		case time.Since(well) > tailPatience:
			return fmt.Errorf("follow: Redis is away: %w", err)
		}
		if !more || err != nil {
			pause(ctx, tailPace+time.Duration(len(t.logs))*tailPacePer)
		}
	}
	return nil
}

// awayError is an error of Redis that may pass.
type awayError struct{ error }

func (e *awayError) Unwrap() error { return e.error }

// discover takes in new partitions, and finds logs that are others than they were:
// reading a log does not tell, until something new is written.
func (t *tail) discover(ctx context.Context) error {
	list, err := t.partitions(ctx)
	if err != nil {
		return &awayError{err}
	}
	err = t.ends(ctx, func(l *tailedLog, end chaincache.Position) error {
		if l.exact && end.Compare(l.pos) < 0 {
			return fmt.Errorf("%w: the log of %v was lost", ranking.ErrChangesMissed, l.p)
		}
		return nil
	})
	for _, p := range list {
		if t.logs[p] == nil {
			t.add(p, t.since, false)
		}
	}
	return err
}

// ends asks where the logs end.
func (t *tail) ends(ctx context.Context, tell func(*tailedLog, chaincache.Position) error) error {
	for logs := range slices.Chunk(t.readable(), tailAtOnce) {
		cmds := make([]*redis.StringCmd, len(logs))
		_, err := t.s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, l := range logs {
				cmds[i] = p.HGet(ctx, l.keys.Head(), headLogField)
			}
			return nil
		})
		if err != nil && !isNil(err) && !isReply(err) {
			return &awayError{err}
		}
		for i, l := range logs {
			id, err := cmds[i].Result()
			if err != nil && !isNil(err) {
				if !t.unreadable(l, err) {
					return &awayError{err}
				}
				continue
			}
			end, err := parsePosition(id)
			if err != nil {
				t.unreadable(l, err)
				continue
			}
			if err := tell(l, end); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tail) readable() []*tailedLog {
	list := make([]*tailedLog, 0, len(t.logs))
	for _, l := range t.logs {
		if !l.unreadable {
			list = append(list, l)
		}
	}
	return list
}

// unreadable leaves a log out that is none; false for refusals that pass.
func (t *tail) unreadable(l *tailedLog, err error) bool {
	if isReply(err) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return false
	}
	l.unreadable = true
	t.s.observe.Garbage("log", fmt.Errorf("%w: %v: %w", ErrGarbage, l.p, err))
	return true
}

// read takes in what is new; more tells that there is more already.
func (t *tail) read(ctx context.Context) (more bool, err error) {
	for logs := range slices.Chunk(t.readable(), tailAtOnce) {
		batches, err := t.readLogs(ctx, logs)
		if err != nil {
			return false, err
		}
		for i, l := range logs {
			more = more || len(batches[i]) == tailCount
			if err := t.deliver(ctx, l, batches[i]); err != nil {
				return false, err
			}
		}
	}
	return more, nil
}

func (t *tail) readLogs(ctx context.Context, logs []*tailedLog) ([][]redis.XMessage, error) {
	cmds := make([]*redis.XStreamSliceCmd, len(logs))
	_, err := t.s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, l := range logs {
			cmds[i] = p.XRead(ctx, &redis.XReadArgs{Streams: []string{l.keys.Log(), l.pos.String()}, Count: tailCount, Block: -1})
		}
		return nil
	})
	if err != nil && !isNil(err) && !isReply(err) {
		return nil, &awayError{err}
	}
	batches := make([][]redis.XMessage, len(logs))
	for i, l := range logs {
		streams, err := cmds[i].Result()
		switch {
		case err == nil && len(streams) > 0:
			batches[i] = streams[0].Messages
		case err == nil, isNil(err):
		case isReply(err) && t.unreadable(l, err):
		default:
			return nil, &awayError{err}
		}
	}
	return batches, nil
}
