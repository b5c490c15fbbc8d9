package store

import (
	"container/list"
	"sync"
)

// headCache keeps the last parsed head of the partitions that were read last. A
// walk names the head it has; Redis sends another only if there is one, so a
// cached head is never served stale.
type headCache struct {
	max   int
	mu    sync.Mutex
	byKey map[string]*list.Element
	used  list.List // of keyedHead, the last used in front
}

type keyedHead struct {
	key  string
	head *Head
}

func newHeadCache(bound int) *headCache {
	return &headCache{max: bound, byKey: map[string]*list.Element{}}
}

// get returns nil if there is none.
func (c *headCache) get(key string) *Head {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[key]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(keyedHead).head
}

// put keeps h, whichever of two readers comes last: an older head costs one more reading.
func (c *headCache) put(key string, h *Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		e.Value = keyedHead{key, h}
		c.used.MoveToFront(e)
		return
	}
	c.byKey[key] = c.used.PushFront(keyedHead{key, h})
	if c.used.Len() > c.max {
		oldest := c.used.Back()
		delete(c.byKey, c.used.Remove(oldest).(keyedHead).key)
	}
}
