package store

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
)

// Head is a partition's head, parsed: who is called what, and who serves which
// scheme. It is immutable and shared.
type Head struct {
	// ID is the log entry that last changed the head; "" = nothing was ever written.
	ID string
	// Dirty: there may be records of retired numbers.
	Dirty bool
	// Spaces are all that ever had a hold and were not swept away.
	Spaces []ranking.Space

	replicas map[string]ReplicaRecord
	// schemes has the index of each scheme, counted the numbers that each index has counts for.
	schemes map[string]uint16
	counted map[uint16][]uint32
	// rotas has one entry for each scheme.
	rotas map[string]*rota
}

// Serving is the serving set of one scheme at one time, without those whose lease ran out.
type Serving struct {
	// Replicas are sorted by id.
	Replicas []ranking.Replica
	seats    map[uint32]int32
	// It is the same set for times in [since, until).
	since, until int64
}

// Seat is the index in Replicas of the replica that a number stands for; false if the number serves nothing.
func (s *Serving) Seat(number uint32) (int, bool) {
	i, ok := s.seats[number]
	return int(i), ok
}

// noServing serves schemes that nobody does.
var noServing = &Serving{since: math.MinInt64, until: math.MaxInt64}

// Serving is who serves the scheme at nowMS; never nil.
func (h *Head) Serving(scheme string, nowMS int64) *Serving {
	r := h.rotas[scheme]
	if r == nil {
		return noServing
	}
	return r.at(nowMS)
}

// Holds tells whether the partition has a live hold of any scheme at nowMS.
func (h *Head) Holds(nowMS int64) bool {
	for _, r := range h.rotas {
		if len(r.at(nowMS).Replicas) > 0 {
			return true
		}
	}
	return false
}

// Replica is the record of a replica id.
func (h *Head) Replica(id string) (ReplicaRecord, bool) {
	r, ok := h.replicas[id]
	return r, ok
}

// rota knows who is counted for a scheme and keeps the set of the present, which
// changes without a write when a lease runs out.
type rota struct {
	all     []ranking.Replica // sorted by id
	numbers []uint32          // beside all
	leases  []int64           // beside all; 0 = none
	present atomic.Pointer[Serving]
}

func (r *rota) at(nowMS int64) *Serving {
	if s := r.present.Load(); s != nil && s.since <= nowMS && nowMS < s.until {
		return s
	}
	s := &Serving{seats: make(map[uint32]int32, len(r.all)), since: math.MinInt64, until: math.MaxInt64}
	for i, lease := range r.leases {
		switch {
		case lease != 0 && nowMS >= lease:
			s.since = max(s.since, lease)
			continue
		case lease != 0:
			s.until = min(s.until, lease)
		}
		s.seats[r.numbers[i]] = int32(len(s.Replicas))
		s.Replicas = append(s.Replicas, r.all[i])
	}
	r.present.Store(s)
	return s
}

// parseHead reads what head.lua returned. What cannot be read is left out and told to garbage.
func parseHead(id string, raw *scripts.RawHead, garbage func(what string, err error)) *Head {
	h := &Head{
		ID:       id,
		Dirty:    raw.Dirty,
		replicas: make(map[string]ReplicaRecord, len(raw.Replicas)/2),
		schemes:  map[string]uint16{},
		counted:  map[uint16][]uint32{},
	}
	for i := 0; i < len(raw.Replicas); i += 2 {
		rec, err := DecodeReplica(raw.Replicas[i+1])
		if err != nil {
			garbage("replica", fmt.Errorf("replica %q: %w", raw.Replicas[i], err))
			continue
		}
		h.replicas[raw.Replicas[i]] = rec
	}
	for i := 0; i < len(raw.Spaces); i += 2 {
		sp, err := ParseSpaceField(raw.Spaces[i])
		if err != nil {
			garbage("space", fmt.Errorf("%w: %w", ErrGarbage, err))
			continue
		}
		index, err := strconv.ParseUint(raw.Spaces[i+1], 10, 16)
		if err != nil {
			garbage("space", fmt.Errorf("%w: index of scheme %q: %w", ErrGarbage, sp.Scheme, err))
			continue
		}
		h.Spaces = append(h.Spaces, sp)
		h.schemes[sp.Scheme] = uint16(index)
	}
	for i := 0; i < len(raw.Serving); i += 2 {
		scheme, number, err := ParseCountField(raw.Serving[i])
		if err == nil {
			_, err = strconv.ParseUint(raw.Serving[i+1], 10, 53)
		}
		if err != nil {
			garbage("count", fmt.Errorf("%w: serving: %w", ErrGarbage, err))
			continue
		}
		h.counted[scheme] = append(h.counted[scheme], number)
	}
	h.seat()
	return h
}

// seat derives the rotas from replicas, schemes and counted.
func (h *Head) seat() {
	ids := make(map[uint32]string, len(h.replicas))
	for id, rec := range h.replicas {
		ids[rec.Number] = id
	}
	h.rotas = make(map[string]*rota, len(h.schemes))
	for scheme, index := range h.schemes {
		r := &rota{}
		// A count without a name is what is left when Redis dropped the names: nobody to send a request to.
		numbers := slices.DeleteFunc(slices.Clone(h.counted[index]), func(n uint32) bool { return ids[n] == "" })
		slices.SortFunc(numbers, func(a, b uint32) int { return strings.Compare(ids[a], ids[b]) })
		for _, n := range numbers {
			rec := h.replicas[ids[n]]
			r.all = append(r.all, rec.Replica(ids[n]))
			r.numbers = append(r.numbers, n)
			r.leases = append(r.leases, rec.LeaseMS)
		}
		h.rotas[scheme] = r
	}
}

// Apply is the head after a log entry, given the entry's id. It is h itself if the
// entry changed no head, and nil if the entry does not tell how: ask for the head again.
func (h *Head) Apply(id string, e *LogEntry) *Head {
	if !e.HeadChanged {
		return h
	}
	if !e.Carried {
		return nil
	}
	next := &Head{ID: id, Dirty: h.Dirty, Spaces: h.Spaces, schemes: h.schemes, counted: h.counted, replicas: maps.Clone(h.replicas)}
	switch e.Op {
	case OpStats:
		next.replicas[e.Replica] = e.Record
	case OpClear:
		delete(next.replicas, e.Replica)
		next.Dirty = true
		next.counted = make(map[uint16][]uint32, len(h.counted))
		for scheme, numbers := range h.counted {
			next.counted[scheme] = slices.DeleteFunc(slices.Clone(numbers), func(n uint32) bool { return n == e.Number })
		}
	default:
		return nil
	}
	next.seat()
	return next
}
