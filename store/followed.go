package store

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inferencecache.io/lookuptier/store/chaincache"
)

// followed is a partition that this pod remembers and whose log it follows.
type followed struct {
	c    *Cached
	p    Partition
	keys Keys
	// blocks of the partition at a position of its log.
	memory *chaincache.Partition

	// heard is when the log was last heard of up to its end, ms since Cached.start;
	// 0 = not yet.
	heard atomic.Int64
	// behind counts own writes that the memory does not have yet.
	behind atomic.Int32
	// asked is when a lookup last wanted the partition, in s since Cached.start.
	asked atomic.Int64
	// clock is Redis' Unix ms at Cached.start.
	clock   atomic.Int64
	dropped atomic.Bool
	own     ownWrites
	// taking is held while entries of the log are applied: each follows from the head
	// that the one before it left.
	taking sync.Mutex
	// seating is the last one of all shards of the scope: see matching.merge.
	seating atomic.Pointer[seating]

	ends string // the follower's only: the end of the log when it was looked at last, while that was not the position
}

// live tells whether an answer from memory may be given at now, ms since start.
func (f *followed) live(now int64) bool { return f.behind.Load() == 0 && f.recent(now) }

// recent is live but for own writes: what memory is still good for if Redis is gone.
func (f *followed) recent(now int64) bool {
	heard := f.heard.Load()
	return heard != 0 && now-heard <= f.c.o.MaxStaleness.Milliseconds()
}

// silence is how long a log in peace may not be heard of: longer means that Redis is away.
const silence = 2 * blockFor

// holds tells whether the memory's head has a live hold in it.
func (f *followed) holds() bool {
	h := headOf(f.memory.Head())
	return h != nil && h.Holds(f.nowMS(f.c.elapsed()))
}

func (f *followed) quiet(now int64) bool { return now-f.heard.Load() > silence.Milliseconds() }

func (f *followed) use(now int64) {
	if s := now / 1000; f.asked.Load() != s {
		f.asked.Store(s)
	}
}

// nowMS is Redis' time as of the last reply, carried on by the monotonic clock.
func (f *followed) nowMS(elapsed int64) int64 { return f.clock.Load() + elapsed }

// setClock takes a time that Redis told between two local moments.
func (f *followed) setClock(redisMS, sent, got int64) { f.clock.Store(redisMS - (sent+got)/2) }

// Why a partition's memory was dropped: values of a metric's label.
const (
	dropIdle    = "idle"
	dropRoom    = "room"
	dropGap     = "gap"
	dropLost    = "lost"
	dropMoved   = "moved"
	dropGarbage = "garbage"
	dropAway    = "away"
	dropClosed  = "closed"
)

// adopt starts to remember a partition that a walk has just read.
func (c *Cached) adopt(p Partition, pos chaincache.Position) *followed {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.find(p); f != nil {
		return f
	}
	now := c.elapsed()
	if c.ctx.Err() != nil || c.banned[p] > now {
		return nil
	}
	next := maps.Clone(*c.followed.Load())
	var let *followed
	if len(next) >= c.o.MaxPartitions {
		for _, f := range next {
			if let == nil || f.asked.Load() < let.asked.Load() {
				let = f
			}
		}
		delete(next, let.p)
	}
	f := &followed{c: c, p: p, keys: p.Keys(), memory: c.memory.NewPartition(pos)}
	f.use(now)
	next[p] = f
	c.followed.Store(&next)
	if let != nil {
		c.gone(let, dropRoom)
	}
	c.follower.joined(f)
	return f
}

// drop forgets a partition; its next lookup reads through and adopts it anew.
func (c *Cached) drop(f *followed, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.find(f.p) == f {
		next := maps.Clone(*c.followed.Load())
		delete(next, f.p)
		c.followed.Store(&next)
	}
	c.gone(f, why)
}

func (c *Cached) gone(f *followed, why string) {
	if f.dropped.Swap(true) {
		return
	}
	f.memory.Close()
	c.count.dropped.WithLabelValues(why).Inc()
	if why != dropIdle && why != dropClosed {
		c.lost.line(c.log.Info, "partition reads through until its log is followed again", "tenant", f.p.Tenant, "model", f.p.Model, "shard", f.p.Shard, "reason", why)
	}
}

// ban drops a partition and keeps it from being adopted for a while: it cannot be followed.
func (c *Cached) ban(f *followed, d time.Duration, why string) {
	c.mu.Lock()
	now := c.elapsed()
	maps.DeleteFunc(c.banned, func(_ Partition, until int64) bool { return until <= now })
	c.banned[f.p] = now + d.Milliseconds()
	c.mu.Unlock()
	c.drop(f, why)
}

// parsePosition reads a stream id; "" is the beginning.
func parsePosition(id string) (chaincache.Position, error) {
	if id == "" {
		return chaincache.Position{}, nil
	}
	ms, seq, ok := strings.Cut(id, "-")
	p := chaincache.Position{}
	var err, err2 error
	p.MS, err = strconv.ParseUint(ms, 10, 64)
	p.Seq, err2 = strconv.ParseUint(seq, 10, 64)
	if !ok || err != nil || err2 != nil {
		return p, fmt.Errorf("%w: log id %q", ErrGarbage, id)
	}
	return p, nil
}

// rosterHead is a Head as the memory asks for it.
type rosterHead struct {
	*Head
	rosters map[string]*atomic.Pointer[servingRoster]
}

type servingRoster struct {
	serving *Serving
	roster  *chaincache.Roster
}

func newRosterHead(h *Head) *rosterHead {
	r := &rosterHead{Head: h, rosters: make(map[string]*atomic.Pointer[servingRoster], len(h.rotas))}
	for scheme := range h.rotas {
		r.rosters[scheme] = new(atomic.Pointer[servingRoster])
	}
	return r
}

// Roster implements chaincache.Head.
func (h *rosterHead) Roster(scheme string, nowMS int64) *chaincache.Roster {
	at := h.rosters[scheme]
	if at == nil {
		return nil
	}
	serving := h.Serving(scheme, nowMS)
	if r := at.Load(); r != nil && r.serving == serving {
		return r.roster
	}
	r := &servingRoster{serving, serving.roster()}
	at.Store(r)
	return r.roster
}

func (s *Serving) roster() *chaincache.Roster {
	numbers := make([]uint32, len(s.Replicas))
	for n, seat := range s.seats {
		numbers[seat] = n
	}
	return chaincache.NewRoster(s.Replicas, numbers)
}

// change is a log entry as the memory takes it, given the head before it.
func (e *LogEntry) change(id string, head *Head) (*chaincache.Change, error) {
	pos, err := parsePosition(id)
	if err != nil {
		return nil, err
	}
	prev, err := parsePosition(e.Prev)
	if err != nil {
		return nil, err
	}
	ch := &chaincache.Change{Prev: prev, Pos: pos, Number: e.Number, HeadChanged: e.HeadChanged}
	if e.HeadChanged && head != nil {
		if next := head.Apply(id, e); next != nil {
			ch.Head = newRosterHead(next)
		}
	}
	switch e.Op {
	case OpReport:
		ch.Space, ch.SeenMS = e.Space, e.SeenMS
		ch.Held = make([]chaincache.Entry, len(e.Holds))
		for i, h := range e.Holds {
			ch.Held[i] = chaincache.Entry{Hash: h.Hash, Tier: h.Tier, Tokens: h.Tokens}
		}
	case OpEvict:
		ch.Spaces, ch.Evicted = e.Spaces, e.Hashes
	default: // no block changed
	}
	return ch, nil
}

// headFor is h as the memory takes it; what it has already keeps its rosters.
func (f *followed) headFor(h *Head) chaincache.Head {
	if has := f.memory.Head(); has != nil && headOf(has).ID == h.ID {
		return has
	}
	return newRosterHead(h)
}

// headOf is the parsed head that the memory has; nil if it must be read.
func headOf(h chaincache.Head) *Head {
	if r, ok := h.(*rosterHead); ok {
		return r.Head
	}
	return nil
}
