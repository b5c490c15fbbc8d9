package store

import (
	"sync"
	"time"
)

const (
	// maxTouchEvery bounds for how long a catalog that lost an entry (a node that
	// came back empty) goes without it while the partition is written to.
	maxTouchEvery = time.Minute
	// maxTouches bounds the memory of touches. Past it all is forgotten, which costs
	// one catalog write for each partition.
	maxTouches = 1 << 16
)

// touches remembers which partitions this process entered in the catalog lately.
// It is safe for concurrent use.
type touches struct {
	every time.Duration
	mu    sync.Mutex
	at    map[string]time.Time
}

// newTouches lets a partition be touched again after every, at most maxTouchEvery.
func newTouches(every time.Duration) *touches {
	return &touches{every: min(every, maxTouchEvery), at: map[string]time.Time{}}
}

// claim tells whether the partition is due, and if so takes it: of several writers
// one touches. A claim that came to nothing is given back with forget.
func (t *touches) claim(tag string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.at[tag]; ok && now.Sub(last) < t.every {
		return false
	}
	if len(t.at) >= maxTouches {
		clear(t.at)
	}
	t.at[tag] = now
	return true
}

// forget makes the partition due.
func (t *touches) forget(tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, tag)
}
