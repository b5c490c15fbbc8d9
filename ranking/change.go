package ranking

import (
	"errors"
	"slices"
)

// ErrChangesMissed ends a Follow whose follower fell behind the log, or whose log was
// lost: some changes will never be told. Whoever keeps a copy must read it anew.
var ErrChangesMissed = errors.New("changes were missed")

// ChangeKind is what a Change says.
type ChangeKind uint8

const (
	// ChangeAdded says that the replica holds Hashes, for the adapter.
	ChangeAdded ChangeKind = iota + 1
	// ChangeEvicted says that the replica no longer holds Hashes: for the adapter, or,
	// if there is none, for any.
	ChangeEvicted
	// ChangeCleared says that the replica holds nothing and has no stats.
	ChangeCleared
	// ChangeUpdated says that the replica's stats, sign of life or lease are new.
	ChangeUpdated
)

// Change is one entry of the index's log, told to those outside of it. What readers
// leave out by themselves, because it expired, is no change.
type Change struct {
	Kind ChangeKind
	Scope
	Replica string
	Adapter string
	Hashes  [][]byte
	// AtMS is when the index changed, Unix ms of its clock.
	AtMS int64
}

// ChangeFilter lets changes pass. What is empty lets everything pass.
type ChangeFilter struct {
	Scope
	Kinds []ChangeKind
}

// PassesScope tells whether changes of s may pass.
func (f *ChangeFilter) PassesScope(s Scope) bool {
	return (f.Tenant == "" || f.Tenant == s.Tenant) && (f.Model == "" || f.Model == s.Model)
}

// PassesKind tells whether changes of kind k may pass.
func (f *ChangeFilter) PassesKind(k ChangeKind) bool {
	return len(f.Kinds) == 0 || slices.Contains(f.Kinds, k)
}
