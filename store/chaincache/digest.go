package chaincache

import "inferencecache.io/lookuptier/ranking"

// digest is what a whole segment says about each replica that holds its first
// block. It is immutable.
type digest struct {
	version uint64
	held    []held // by ascending number
}

// held is how far into a segment one replica holds every block, stale holds
// included, and the oldest and coldest of these.
type held struct {
	seenMS int64
	number uint32
	depth  uint16
	tier   ranking.Tier
}

const (
	heldBytes   = 16
	digestBytes = 32
)

func (d *digest) bytes() int64 {
	if d == nil {
		return 0
	}
	return digestBytes + heldBytes*int64(cap(d.held))
}

// digested returns the segment's digest, working it out if a block changed. What
// a concurrent change makes of it, the caller's look at the sequence number shows.
func (s *segment) digested(c *Cache) *digest {
	// The version is read first: a digest of newer blocks under an older version is
	// void at worst, never the reverse.
	version := s.version.Load()
	if d := s.digest.Load(); d != nil && d.version == version {
		return d
	}
	d := s.digestNow(version)
	c.bytes.Add(d.bytes() - s.digest.Swap(d).bytes())
	if s.dead.Load() { // dropped meanwhile: its account is closed
		c.bytes.Add(-s.digest.Swap(nil).bytes())
	}
	return d
}

func (s *segment) digestNow(version uint64) *digest {
	first := s.blocks[0].holds.Load().list
	d := &digest{version: version}
	if len(first) == 0 {
		return d
	}
	d.held = make([]held, len(first))
	for i := range first {
		h := &first[i]
		d.held[i] = held{number: h.number, seenMS: h.seenMS.Load(), tier: h.tier(), depth: 1}
	}
	var open int
	for i := 1; i < len(s.blocks); i++ {
		list := s.blocks[i].holds.Load().list
		open = 0
		at := 0
		for j := range d.held {
			r := &d.held[j]
			if int(r.depth) != i {
				continue
			}
			for at < len(list) && list[at].number < r.number {
				at++
			}
			if at == len(list) {
				break
			}
			h := &list[at]
			if h.number != r.number {
				continue
			}
			at++
			open++
			r.depth++
			r.seenMS = min(r.seenMS, h.seenMS.Load())
			r.tier = max(r.tier, h.tier())
		}
		if open == 0 {
			break
		}
	}
	return d
}
