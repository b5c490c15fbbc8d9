// Package mirror keeps what one engine's KV cache holds, and what of it the index
// knows.
//
// It has two tables. Blocks are the engine's: by engine hash, with the media that
// hold them, their parent, and where in a chain they stand. Holds are the index's:
// by adapter and content fingerprint, with the tier that they should have and the
// tier that was last written. Several blocks may share one hold. Tokens are used
// to compute a fingerprint and then forgotten.
//
// What has to be written is no list of changes but the difference between the two
// tiers of a hold: a block that came and went costs nothing, a late write never
// undoes a newer one, and what waits is bounded by what is or was resident.
package mirror
