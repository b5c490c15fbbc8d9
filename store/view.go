package store

import (
	"context"
	"fmt"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
)

// View is what one partition held at one moment.
type View struct {
	// NowMS is Redis' time, Unix ms.
	NowMS int64
	// LogID is the last log entry that the view includes; "" = none.
	LogID string
	Head  *Head
	// Records has the hold records (DecodeHolds) of the leading blocks that somebody
	// held. If it is shorter than the chain, nobody held the next block; of what lies
	// beyond that it says nothing.
	Records []string
	// replica: it was read from one, whose clock is not the master's.
	replica bool
}

// Read returns one atomic view of a partition: its head, and the records of a
// space's blocks up to the first that nobody holds. With no hashes it reads the head alone.
// It asks the master.
func (s *Store) Read(ctx context.Context, p Partition, sp ranking.Space, hashes [][]byte) (View, error) {
	return s.readFrom(ctx, s.rdb, p, sp, hashes)
}

func (s *Store) readFrom(ctx context.Context, rdb scripts.TxPiper, p Partition, sp ranking.Space, hashes [][]byte) (View, error) {
	if s.tracer != nil {
		if done := s.tracer.Walk(ctx, p.Shard, len(hashes)); done != nil {
			v, err := s.walk(ctx, rdb, p, sp, hashes)
			done(len(v.Records), err)
			return v, err
		}
	}
	return s.walk(ctx, rdb, p, sp, hashes)
}

func (s *Store) walk(ctx context.Context, rdb scripts.TxPiper, p Partition, sp ranking.Space, hashes [][]byte) (View, error) {
	k := p.Keys()
	known := s.heads.get(k.base)
	id := ""
	if known != nil {
		id = known.ID
	}
	parts := k.script()
	w, err := scripts.Walk(ctx, rdb, &parts, k.Blocks(SpaceSuffix(sp)), id, hashes)
	if err != nil {
		return View{}, fmt.Errorf("read %v: %w", p, err)
	}
	if w.Head == nil && known == nil {
		return View{}, fmt.Errorf("read %v: %w: no head", p, ErrGarbage)
	}
	if w.Head != nil {
		known = parseHead(w.HeadID, w.Head, func(what string, err error) {
			s.observe.Garbage(what, fmt.Errorf("%v: %w", p, err))
		})
		if known.ID != "" {
			s.heads.put(k.base, known)
		}
	}
	return View{NowMS: w.NowMS, LogID: w.LogID, Head: known, Records: w.Records}, nil
}

// script is the part of the keys that every write names.
func (k Keys) script() scripts.Partition {
	return scripts.Partition{Head: k.Head(), Replicas: k.Replicas(), Serving: k.Serving(), Spaces: k.Spaces(), Log: k.Log()}
}
