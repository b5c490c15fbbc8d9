// Package chaincache is a lookup pod's memory of the index: which blocks are held
// by whom, kept so that the walk of a hot chain costs a memory compare.
//
// A Partition knows blocks, present and absent, as walks of Redis read them and as
// the change log changed them since. The truth stands in one table, hash → holds.
// Above it lies a compressed radix tree of the chains that were asked for: a
// segment is a run of blocks with its hashes side by side and, worked out once and
// kept until one of its blocks changes, how far each replica holds it, since when
// and how cold. A lookup compares hashes segment by segment and intersects these
// digests; it goes block by block only where a hold has gone stale or the request
// leaves a segment half way.
//
// # Locks
//
// Lookups take none. Everything that they read is immutable or atomic, and a
// sequence number per partition, odd while a change is being published, tells
// them to look again: an answer never shows half of a change. Writers (fills,
// changes of the log, evictions) share the Cache's one mutex, and publish in a
// microsecond or two what they prepared before.
//
// # Positions
//
// A Partition stands at a position of the change log: its blocks are as they were
// there. A walk of Redis that was read at P fits if P is that position; if the
// partition has moved on meanwhile, the changes between are applied to the walk's
// blocks first; if P lies ahead, the partition must get there before it can take them.
//
// The package does no I/O and has no clock.
package chaincache
