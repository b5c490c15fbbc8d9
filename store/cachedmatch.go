package store

import (
	"context"
	"errors"
	"time"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store/chaincache"
)

// Match fills ev from memory, or from Redis and then into memory. A view from memory
// while Redis is away is not an error: ev.Degraded tells, and ev.Partial if it does not
// cover q. An error means that nothing is known.
func (c *Cached) Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	m := c.scrap.Get().(*matching)
	defer func() {
		m.release()
		c.scrap.Put(m)
	}()
	m.c, m.q = c, q
	for len(m.shards) < c.shards {
		m.shards = append(m.shards, shardAnswer{})
	}
	now := c.elapsed()
	missed := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.p = Partition{Scope: q.Scope, Shard: i}
		if s.ok = m.remember(s, now); !s.ok {
			missed++
		}
	}
	if missed > 0 {
		if err := m.readMissing(ctx, missed); err != nil {
			c.count.nothing.Inc()
			return err
		}
	}
	return m.conclude(ctx, ev)
}

// matching is one Match at work; it is used again.
type matching struct {
	c      *Cached
	q      *ranking.Query
	shards []shardAnswer
	seats  *seating
}

// shardAnswer is what one shard says. ok tells whether it says anything.
type shardAnswer struct {
	p        Partition
	ok       bool
	degraded bool
	short    bool // memory does not cover the query, and Redis did not answer
	nowMS    int64
	head     *Head
	roster   *chaincache.Roster // nil = nobody serves the scheme
	runs     []ranking.Run
	known    int // blocks answered from memory
	walked   int // blocks read
	query    chaincache.Query
	answer   chaincache.Answer
}

func (m *matching) release() {
	for i := range m.shards {
		s := &m.shards[i]
		s.head, s.roster, s.runs = nil, nil, nil
		s.known, s.walked, s.degraded, s.short, s.ok = 0, 0, false, false, false
		s.query = chaincache.Query{}
	}
	m.q = nil
}

// remember answers a shard from memory alone; false if that cannot be.
func (m *matching) remember(s *shardAnswer, now int64) bool {
	f := m.c.find(s.p)
	if f == nil {
		return m.c.absent.answer(s, now)
	}
	f.use(now)
	if !f.live(now) {
		return false
	}
	s.degraded = f.quiet(now)
	return m.look(s, f, now, false, false)
}

// look asks the memory, whatever its age.
func (m *matching) look(s *shardAnswer, f *followed, now int64, again, partial bool) bool {
	q := &s.query
	*q = chaincache.Query{
		Space: m.q.Space, Hashes: m.q.Hashes, Tokens: m.q.Tokens, Exact: m.q.Exact,
		NowMS: f.nowMS(now), Again: again, Partial: partial,
	}
	q.CutoffMS = q.NowMS - m.q.TTLMS
	f.memory.Lookup(q, &s.answer)
	if !s.answer.Complete {
		return false
	}
	s.nowMS, s.head, s.roster = q.NowMS, headOf(s.answer.Head), s.answer.Roster
	s.runs, s.known = s.answer.Runs, s.answer.Known-s.walked
	return true
}

// readMissing asks Redis for the shards that memory did not answer, all at once.
// As long as one shard answers, the others cost no more than their own hints.
func (m *matching) readMissing(ctx context.Context, missed int) error {
	c := m.c
	enough, stop := patience(ctx)
	defer stop()
	if c.shards == 1 {
		err := m.readShard(ctx, enough, &m.shards[0])
		m.shards[0].ok = err == nil
		return err
	}
	errs := make(chan error, missed)
	for i := range m.shards {
		s := &m.shards[i]
		if s.ok {
			continue
		}
		// Each goroutine has its shard to itself, and ends with enough or ctx.
		go func() {
			err := m.readShard(ctx, enough, s)
			s.ok = err == nil
			if err != nil {
				c.observe.ShardFailed(s.p.Shard, err)
			}
			errs <- err
		}()
	}
	var failed error
	n := 0
	for range missed {
		if err := <-errs; err != nil {
			failed = err
			n++
		}
	}
	if n == c.shards {
		return failed
	}
	return nil
}

var errSlow = errors.New("store: Redis did not answer in time, and memory knows nothing")

// readShard answers one shard with the help of Redis, or without it from whatever
// memory has, if that is not too old.
func (m *matching) readShard(ctx context.Context, enough <-chan time.Time, s *shardAnswer) error {
	c := m.c
	if f := c.find(s.p); f != nil && f.quiet(c.elapsed()) && f.heard.Load() != 0 && m.makeDo(s) {
		return nil // Redis is known to be away: nobody waits for it
	}
	if enough == nil {
		err := m.walk(ctx, s)
		if err != nil && m.makeDo(s) {
			return nil
		}
		return err
	}
	walkCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.walk(walkCtx, s) }()
	select {
	case err := <-done:
		if err != nil && m.makeDo(s) {
			return nil
		}
		return err
	case <-enough:
	}
	if f := c.find(s.p); c.shards == 1 && (f == nil || !f.recent(c.elapsed())) {
		// Memory has nothing to offer, so Redis gets all the time there is.
		return <-done
	}
	cancel()
	if err := <-done; err == nil || m.makeDo(s) {
		return nil
	}
	return errSlow
}

// walk reads until memory knows enough, or Redis' own view answers.
func (m *matching) walk(ctx context.Context, s *shardAnswer) error {
	c := m.c
	const rounds = 4
	for range rounds {
		f := c.find(s.p)
		from, headOnly := 0, false
		if f != nil && f.live(c.elapsed()) {
			if m.look(s, f, c.elapsed(), true, false) {
				return nil
			}
			from, headOnly = s.answer.Known, s.answer.Head == nil
		}
		r, err := c.readThrough(ctx, s.p, m.q, from, headOnly)
		if err != nil {
			return err
		}
		if !headOnly {
			s.walked = max(s.walked, min(len(r.view.Records)+1, len(m.q.Hashes)-from))
		}
		f = c.find(s.p)
		if r.filled && f != nil && f.live(c.elapsed()) && m.look(s, f, c.elapsed(), true, false) {
			return nil
		}
		if from == 0 && !headOnly {
			m.take(s, &r.view)
			return nil
		}
	}
	// The memory changed faster than it could be filled.
	r, err := c.readThrough(ctx, s.p, m.q, 0, false)
	if err != nil {
		return err
	}
	m.take(s, &r.view)
	return nil
}

// take answers from a view of the whole chain.
func (m *matching) take(s *shardAnswer, v *View) {
	serving := v.Head.Serving(m.q.Scheme, v.NowMS)
	ev := ranking.Evidence{}
	m.c.appendRuns(&ev, m.q, v, serving, nil)
	s.nowMS, s.head, s.runs, s.known = v.NowMS, v.Head, ev.Runs, 0
	s.roster = &chaincache.Roster{Replicas: serving.Replicas}
}

// makeDo answers from whatever memory has, if its log was heard of lately enough.
func (m *matching) makeDo(s *shardAnswer) bool {
	now := m.c.elapsed()
	f := m.c.find(s.p)
	if f == nil || !f.recent(now) || !m.look(s, f, now, true, true) {
		return false
	}
	s.degraded, s.short, s.walked = true, s.answer.Short, 0
	return true
}

// conclude makes one answer of all shards'.
func (m *matching) conclude(ctx context.Context, ev *ranking.Evidence) error {
	c, q := m.c, m.q
	*ev = ranking.Evidence{Runs: ev.Runs[:0], Asked: len(q.Hashes)}
	for i := range m.shards {
		s := &m.shards[i]
		ev.Partial = ev.Partial || !s.ok || s.short
		if s.ok {
			ev.NowMS = max(ev.NowMS, s.nowMS)
			ev.Cached, ev.Walked = max(ev.Cached, s.known), max(ev.Walked, s.walked)
			ev.Degraded = ev.Degraded || s.degraded
		}
	}
	if ev.Degraded {
		c.count.degraded.Inc()
	}
	if c.shards == 1 {
		if r := m.shards[0].roster; r != nil {
			ev.Serving = r.Replicas
		}
		ev.Runs = append(ev.Runs, m.shards[0].runs...)
	} else {
		m.merge(ev)
	}
	if len(ev.Serving) > 0 || ev.Partial {
		return nil
	}
	var err error
	ev.Census, err = m.diagnose(ctx, ev.NowMS)
	if err != nil && ev.Degraded {
		ev.Census, err = ranking.CensusKnown, nil
	}
	return err
}

// diagnose tells where the index stops knowing the scope. Without the head of a shard
// there is no telling.
func (m *matching) diagnose(ctx context.Context, nowMS int64) (ranking.Census, error) {
	for i := range m.shards {
		if m.shards[i].head == nil {
			return ranking.CensusKnown, nil
		}
	}
	for i := range m.shards {
		if m.shards[i].head.Holds(nowMS) {
			return ranking.CensusSchemeEmpty, nil
		}
	}
	return m.c.censusOf(ctx, m.q.Scope)
}
