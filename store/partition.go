package store

import (
	"fmt"

	"inferencecache.io/lookuptier/ranking"
)

// Partition is one shard of one (tenant, model): what a script sees at once.
type Partition struct {
	ranking.Scope
	Shard int
}

// Keys of the partition.
func (p Partition) Keys() Keys { return KeysOf(p.Scope, p.Shard) }

func (p Partition) String() string {
	return fmt.Sprintf("tenant %q model %q shard %d", p.Tenant, p.Model, p.Shard)
}
