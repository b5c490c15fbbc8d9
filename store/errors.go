package store

import "errors"

var (
	// ErrGarbage: something in Redis is not what the layout says: a foreign type, a
	// truncated record, a count that is no number. Lookups go on without it.
	ErrGarbage = errors.New("garbage in the index")
	// ErrLayout: Redis holds another layout version or number of shards than this
	// component was started with. Nothing was touched.
	ErrLayout = errors.New("layout mismatch")
)
