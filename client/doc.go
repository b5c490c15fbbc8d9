// Package client is what a gateway or a producer of cache state uses to talk to
// lookup pods.
//
// Lookups fail open: LookupRoute always returns a Result. A pod that cannot be
// reached, one that is too slow, and a reason code that this version does not know
// are each a Result without replicas, which says why; a gateway then routes as it
// would without the tier.
//
// Reports must arrive: a Reporter keeps them, in order, until a pod has acknowledged
// that the index took them.
//
// # Packed chains
//
// A chain travels in one piece to pods that understand it, which is several times
// cheaper for both sides, and hash by hash to those that do not. Callers need not
// care and may fill in either form. The client starts with the plain form; replies
// tell it what the pods take. A pod that does not know the packed form, met on the
// way to a newer or an older version, finds such a request contradictory and gives no
// hint; the client asks it again in the plain form, within the same deadline, and
// packs nothing for a while.
package client
