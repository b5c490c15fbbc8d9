package store

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// A gateway with a wrong name in its configuration asks for what does not exist, and
// asks with every request. The answer is remembered for a moment, so that Redis hears
// of it at most 20 times a second; what this pod writes itself ends that at once, and
// what others write is seen after that moment.

const (
	absentFor = 50 * time.Millisecond
	// maxAbsent bounds what is remembered: names come from callers.
	maxAbsent = 1024
)

// absentees are partitions in which nothing was ever written.
type absentees struct {
	mu     sync.RWMutex
	byName map[Partition]absentee
	// writes count this pod's, by a hash of the partition: a read that began before a
	// write says nothing of what is there after it.
	writes [256]atomic.Uint64
}

type absentee struct {
	until int64 // ms since Cached.start
	clock int64 // Redis' Unix ms at Cached.start
	head  *Head
}

var absentSeed = maphash.MakeSeed()

func (a *absentees) counter(p Partition) *atomic.Uint64 {
	return &a.writes[maphash.Comparable(absentSeed, p)%uint64(len(a.writes))]
}

func (a *absentees) mark(p Partition) uint64 { return a.counter(p).Load() }

// note remembers that a read sent at sent found nothing. mark was taken before it.
func (a *absentees) note(p Partition, mark uint64, v View, sent int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counter(p).Load() != mark {
		return
	}
	if len(a.byName) >= maxAbsent {
		for other, e := range a.byName {
			if e.until <= sent || len(a.byName) >= maxAbsent {
				delete(a.byName, other)
			}
		}
	}
	if a.byName == nil {
		a.byName = map[Partition]absentee{}
	}
	a.byName[p] = absentee{until: sent + absentFor.Milliseconds(), clock: v.NowMS - sent, head: v.Head}
}

// wrote ends the memory of p.
func (a *absentees) wrote(p Partition) {
	a.counter(p).Add(1)
	a.mu.RLock()
	_, has := a.byName[p]
	a.mu.RUnlock()
	if has {
		a.mu.Lock()
		delete(a.byName, p)
		a.mu.Unlock()
	}
}

// answer answers for a partition that was absent just now.
func (a *absentees) answer(s *shardAnswer, now int64) bool {
	a.mu.RLock()
	e, ok := a.byName[s.p]
	a.mu.RUnlock()
	if !ok || e.until <= now {
		return false
	}
	s.nowMS, s.head = e.clock+now, e.head
	return true
}

// censusCache remembers where the index stopped knowing a scope.
type censusCache struct {
	mu      sync.Mutex
	forgot  uint64 // counts forget and filled
	byScope map[ranking.Scope]censused
}

type censused struct {
	census ranking.Census
	until  int64
}

// censusOf is Store.census, remembered.
func (c *Cached) censusOf(ctx context.Context, scope ranking.Scope) (ranking.Census, error) {
	k := &c.census
	now := c.elapsed()
	k.mu.Lock()
	e, ok := k.byScope[scope]
	forgot := k.forgot
	k.mu.Unlock()
	if ok && now < e.until {
		return e.census, nil
	}
	census, err := c.Store.census(ctx, scope)
	if err != nil {
		return census, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.forgot == forgot {
		if k.byScope == nil || len(k.byScope) >= maxAbsent {
			k.byScope = map[ranking.Scope]censused{}
		}
		k.byScope[scope] = censused{census, now + absentFor.Milliseconds()}
	}
	return census, nil
}

// filled forgets what a hold of the tenant makes wrong: that nobody holds anything,
// and whatever was said of the tenant.
func (k *censusCache) filled(tenant string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for scope, e := range k.byScope {
		if scope.Tenant == tenant || e.census == ranking.CensusIndexEmpty {
			delete(k.byScope, scope)
		}
	}
	k.forgot++
}

// forget forgets all: something may be empty now.
func (k *censusCache) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byScope = nil
	k.forgot++
}
