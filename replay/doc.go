// Package replay plays a recorded request trace against a lookup tier, with
// simulated engines in the place of real model servers.
//
// Each engine has an LRU cache of KV blocks. A request is looked up through the
// tier's own gRPC contract, goes to the engine that the hint names, or to the next
// one in turn without a hint, and what that engine stored and evicted is reported
// back before the request counts as done. The same requests run through local
// baselines (round robin, shared caches), so that one run answers what the tier's
// hints are worth on that traffic.
//
// With one request at a time a replay repeats: the same trace, engines and seed give
// the same hints, whatever the machine, as long as it takes little of the tenant's
// evictionTTL (freshness is a factor of every score).
package replay
