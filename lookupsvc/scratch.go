package lookupsvc

import (
	"sync"

	"inferencecache.io/lookuptier/ranking"
)

// lookup is the working memory of one LookupRoute, reused between calls.
type lookup struct {
	in ranking.Input
	ev ranking.Evidence
	// hashes, tokens and fingerprints back the input where the request itself does not.
	hashes       [][]byte
	tokens       []int32
	fingerprints []byte
	candidates   []ranking.Candidate
	call         call
}

// largestKept bounds, in blocks, the buffers that go back to the pool: one
// prompt of a million tokens must not be held for ever.
const largestKept = 4096

var lookups = sync.Pool{New: func() any { return &lookup{call: call{done: make(chan error, 1)}} }}

func takeLookup() *lookup { return lookups.Get().(*lookup) }

// release gives l back. Nothing of a request or of the index stays referenced:
// both may be large, and the index shares its slices with other lookups.
func (l *lookup) release() {
	if cap(l.hashes) > largestKept || cap(l.candidates) > largestKept {
		return
	}
	clear(l.hashes)
	clear(l.candidates)
	l.in, l.ev = ranking.Input{}, ranking.Evidence{}
	lookups.Put(l)
}
