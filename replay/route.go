package replay

import pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"

// reasonPrefixMatch is the one reason that claims tokens.
const reasonPrefixMatch = "PREFIX_MATCH"

// route picks the engine for request i: the top hint's, whatever its reason, else the
// next one in turn. reply is nil when the lookup failed.
//
// It follows the top hint only and never weighs load by itself, so that what it
// shows is the tier's doing. A gateway may well do better with the whole list.
func (r *run) route(i int, reply *pb.LookupRouteResponse) (e *engine, followed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reason := ReasonFailed
	if reply != nil {
		reason = reply.GetReasonCode()
	}
	r.reasons[reason]++
	if i < r.o.Warmup {
		r.routing.Warmup++
		return r.inTurn(), false
	}
	if scores := reply.GetReplicaScores(); len(scores) > 0 {
		if number, ours := r.number[scores[0].GetReplicaId()]; ours {
			r.routing.Followed++
			return r.engines[number], true
		}
		r.routing.Foreign++
	}
	r.routing.RoundRobin++
	return r.inTurn(), false
}

func (r *run) inTurn() *engine {
	e := r.engines[r.next]
	r.next = (r.next + 1) % len(r.engines)
	return e
}

// judge holds a prefix match to what the engine really had.
func (r *run) judge(promised, reused int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case promised == reused:
		r.routing.Exact++
	case promised > reused:
		r.routing.Overstated++
	default:
		r.routing.Understated++
	}
}
