package replay

// roundRobin plays the requests over n caches of the given size in turn, and
// returns how many blocks were reused. n = 1 is one shared cache; size 0 = unbounded.
func roundRobin(requests []Request, n, size int) int64 {
	caches := make([]*Cache, n)
	for i := range caches {
		caches[i] = NewCache(size)
	}
	var reused int64
	for i := range requests {
		reused += int64(caches[i%n].Serve(requests[i].Blocks).Reused)
	}
	return reused
}

// compare puts the reuse that the hints reached beside what other policies reach on
// the same requests. served is how many blocks went through the engines: more than
// the requests have when a replay was broken off in the middle of one.
func compare(requests []Request, o *Options, withHints, served int64) (rows []Reuse, blocks int64) {
	for i := range requests {
		blocks += int64(len(requests[i].Blocks))
	}
	return []Reuse{
		reuse(PolicyHints, withHints, served),
		reuse(PolicyRoundRobin, roundRobin(requests, o.Engines, o.Blocks), blocks),
		reuse(PolicyPooled, roundRobin(requests, 1, o.Engines*o.Blocks), blocks),
		reuse(PolicyUnbounded, roundRobin(requests, 1, 0), blocks),
	}, blocks
}
