package replay

import (
	"encoding/binary"
	"sync"
)

// engine is one simulated model server.
type engine struct {
	id string

	// mu is held from the change of the cache until the tier has taken it, so that
	// the tier hears of an engine's changes in the order in which they happened.
	mu    sync.Mutex
	cache *Cache
	load  EngineLoad
	// running holds the trace times, in ms, at which the engine's requests end.
	running finishTimes
}

func newEngines(o *Options) []*engine {
	engines := make([]*engine, o.Engines)
	for i := range engines {
		id := o.EngineID(i)
		engines[i] = &engine{id: id, cache: NewCache(o.Blocks), load: EngineLoad{ID: id}}
	}
	return engines
}

// serve runs a request through the cache; e.mu is held.
func (e *engine) serve(req *Request) Delta {
	d := e.cache.Serve(req.Blocks)
	e.load.Requests++
	e.load.Blocks += int64(len(req.Blocks))
	e.load.Reused += int64(d.Reused)
	e.load.Stored += int64(d.Stored)
	e.load.Evicted += int64(len(d.Evicted))
	return d
}

// hitRate is the share of blocks reused so far; e.mu is held.
func (e *engine) hitRate() float32 {
	if e.load.Blocks == 0 {
		return 0
	}
	return float32(e.load.Reused) / float32(e.load.Blocks)
}

func evictedHash(id, seed uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, hashOf(id, seed))
}
