package scripts

import "time"

// Has says what a partition has, in the order of catalog_file.lua.
type Has int

const (
	// HasNothing: no key that a sweeper would have to look at.
	HasNothing Has = iota
	// HasRows: stats, leases or dead records, but no live hold.
	HasRows
	// HasHolds: at least one live hold.
	HasHolds
)

// CatalogKeys are the keys of the catalog that concern one tenant, all in one slot.
type CatalogKeys struct{ Tenants, Tenant, Partitions string }

// CatalogEntry is one partition as the catalog names it.
type CatalogEntry struct{ Tenant, Member, PartitionMember string }

// CatalogFile makes the call of catalog_file.lua: a partition that has something is
// entered for ttl from now, one that has nothing is struck out.
func CatalogFile(k CatalogKeys, e CatalogEntry, has Has, ttl time.Duration) *Call {
	return &Call{
		script: catalogFileScript,
		keys:   []string{k.Tenants, k.Tenant, k.Partitions},
		args:   []any{e.Tenant, e.Member, e.PartitionMember, int(has), ttl.Milliseconds()},
	}
}

// Census is how far the catalog knows a tenant and its model.
type Census int

const (
	// CensusIndexEmpty: no tenant holds anything.
	CensusIndexEmpty Census = iota
	// CensusTenantEmpty: the tenant holds nothing.
	CensusTenantEmpty
	// CensusModelEmpty: the tenant holds something, but nothing for the model.
	CensusModelEmpty
	// CensusModelHolds: the model holds something.
	CensusModelHolds
)

// CatalogCensus makes the call of catalog_census.lua; members are those of all
// shards of the model.
func CatalogCensus(k CatalogKeys, members []string) *Call {
	args := make([]any, len(members))
	for i, m := range members {
		args[i] = m
	}
	return &Call{script: catalogCensusScript, keys: []string{k.Tenants, k.Tenant}, args: args}
}

// Counted reads the reply of CatalogCensus.
func (c *Call) Counted() (Census, error) {
	n, err := c.cmd.Int()
	return Census(n), err
}
