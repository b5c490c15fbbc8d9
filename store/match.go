package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store/chaincache"
)

// Match fills ev with what Redis knows of q, read now. An error means that nothing
// is known. With several shards one that fails or dawdles costs the hints of its
// own replicas, makes ev Partial, and Observer.ShardFailed is told.
func (s *Store) Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	*ev = ranking.Evidence{Runs: ev.Runs[:0], Asked: len(q.Hashes)}
	views, err := s.views(ctx, q)
	if err != nil {
		return err
	}
	servings := make([]*Serving, len(views))
	for i, v := range views {
		if v == nil {
			ev.Partial = true
			continue
		}
		ev.NowMS = max(ev.NowMS, v.NowMS)
		ev.Walked = max(ev.Walked, min(len(v.Records)+1, len(q.Hashes)))
		servings[i] = v.Head.Serving(q.Scheme, v.NowMS)
	}
	var seats [][]int
	ev.Serving, seats = merge(servings)
	for i, v := range views {
		if v != nil {
			s.appendRuns(ev, q, v, servings[i], seats[i])
		}
	}
	if len(ev.Serving) == 0 && !ev.Partial {
		ev.Census, err = s.diagnose(ctx, q.Scope, views)
	}
	return err
}

// views reads all shards; those without an answer are nil, but not all of them.
func (s *Store) views(ctx context.Context, q *ranking.Query) ([]*View, error) {
	if s.shards == 1 {
		v, err := s.look(ctx, Partition{Scope: q.Scope}, q.Space, q.Hashes, chaincache.Position{})
		return []*View{&v}, err
	}
	type answer struct {
		shard int
		view  View
		err   error
	}
	// A reader may outlive this call, and the caller uses its buffers again: readers
	// have copies, are told to end, and put their answer into a channel that holds all.
	reading, end := context.WithCancel(ctx)
	defer end()
	scope, space, hashes := q.Scope, q.Space, hashesOf(q, false)
	answers := make(chan answer, s.shards)
	for shard := range s.shards {
		go func() {
			v, err := s.look(reading, Partition{Scope: scope, Shard: shard}, space, hashes, chaincache.Position{})
			answers <- answer{shard, v, err}
		}()
	}
	enough, stop := patience(ctx)
	defer stop()
	views := make([]*View, s.shards)
	var failed []error
	for pending := s.shards; pending > 0; pending-- {
		select {
		case a := <-answers:
			if a.err != nil {
				failed = append(failed, a.err)
				s.observe.ShardFailed(a.shard, a.err)
				continue
			}
			views[a.shard] = &a.view
		case <-enough:
			if len(failed)+pending == s.shards { // none has answered: there is nothing to go on with
				enough = nil
				pending++
				continue
			}
			for shard, v := range views {
				if v == nil {
					s.observe.ShardFailed(shard, errors.New("no answer in time"))
				}
			}
			return views, nil
		}
	}
	if len(failed) == s.shards {
		return nil, fmt.Errorf("all %d shards: %w", s.shards, failed[0])
	}
	return views, nil
}

// patience ends when a quarter of the caller's time is left: then a lookup makes do
// with the shards that have answered. Without a deadline it never ends.
func patience(ctx context.Context) (<-chan time.Time, func() bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(time.Until(deadline) * 3 / 4)
	return t.C, t.Stop
}

// scratch is what a walk needs besides its result.
type scratch struct {
	walk  ranking.Walk
	holds []ranking.Hold
	exact []ranking.NumberRun
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// appendRuns walks the view's records and appends the runs of those who serve.
// seats maps the shard's serving set to the merged one; nil if they are the same.
func (s *Store) appendRuns(ev *ranking.Evidence, q *ranking.Query, v *View, serving *Serving, seats []int) {
	if len(serving.Replicas) == 0 {
		return
	}
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	for _, run := range s.runs(sc, q, v) {
		seat, ok := serving.Seat(run.Replica)
		if !ok {
			continue // retired, or its lease ran out
		}
		if seats != nil {
			seat = seats[seat]
		}
		ev.Runs = append(ev.Runs, ranking.Run{Replica: seat, Tokens: run.Tokens, SeenMS: run.SeenMS, Tier: run.Tier, Blocks: run.Blocks})
	}
}

// runs are those of every number, live or not. A block that cannot be read is held by nobody.
func (s *Store) runs(sc *scratch, q *ranking.Query, v *View) []ranking.NumberRun {
	cutoff := v.NowMS - q.TTLMS
	decode := func(i int) []ranking.Hold {
		var err error
		if sc.holds, err = DecodeHolds(sc.holds[:0], v.Records[i]); err != nil {
			s.observe.Garbage("hold", fmt.Errorf("tenant %q model %q block %x: %w", q.Tenant, q.Model, q.Hashes[i], err))
		}
		return sc.holds
	}
	if q.Exact {
		if len(v.Records) == 0 {
			return nil
		}
		sc.exact = ranking.ExactRuns(decode(0), cutoff, sc.exact[:0])
		return sc.exact
	}
	sc.walk.Reset(cutoff)
	for i := range v.Records {
		if sc.walk.Step(decode(i), q.Tokens[i]) == 0 {
			break
		}
	}
	return sc.walk.Runs()
}

// merge joins the serving sets of all shards, which have no replica in common,
// sorted by id, and says where each set's members sit. One set alone stays as it is.
func merge(sets []*Serving) ([]ranking.Replica, [][]int) {
	seats := make([][]int, len(sets))
	if len(sets) == 1 {
		return sets[0].Replicas, seats
	}
	type member struct{ set, seat int }
	var members []member
	for i, set := range sets {
		if set == nil {
			continue
		}
		seats[i] = make([]int, len(set.Replicas))
		for seat := range set.Replicas {
			members = append(members, member{i, seat})
		}
	}
	slices.SortFunc(members, func(a, b member) int {
		return strings.Compare(sets[a.set].Replicas[a.seat].ID, sets[b.set].Replicas[b.seat].ID)
	})
	merged := make([]ranking.Replica, len(members))
	for i, m := range members {
		merged[i] = sets[m.set].Replicas[m.seat]
		seats[m.set][m.seat] = i
	}
	return merged, seats
}

// diagnose tells where the index stops knowing the scope, given that nobody serves
// the scheme. views are of all shards.
func (s *Store) diagnose(ctx context.Context, scope ranking.Scope, views []*View) (ranking.Census, error) {
	for _, v := range views {
		if v.Head.Holds(v.NowMS) {
			return ranking.CensusSchemeEmpty, nil
		}
	}
	return s.census(ctx, scope)
}
