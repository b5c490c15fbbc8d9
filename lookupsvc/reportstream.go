package lookupsvc

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

const (
	// largestReportKept bounds, in holds, the buffer that goes back to the pool.
	largestReportKept = 16_384
	// maxTogether and maxHoldsTogether bound the updates that one call to the index takes.
	maxTogether      = 64
	maxHoldsTogether = 8_192
	// maxBytesWaiting bounds the updates of a stream that wait for that; one alone may be larger.
	maxBytesWaiting = 1 << 20
)

var flatteners = sync.Pool{New: func() any { return new(flattener) }}

// ReportCacheState hands the updates to the index in their order and acknowledges
// once, after the stream's end. Updates that arrive while the index is busy wait, and
// are handed over together: a producer that sends faster than the index answers
// is not slowed to an update per round trip. One that the index did not take ends the
// call with UNAVAILABLE: the producer keeps the updates of the stream and sends
// them again, which changes nothing for those that were taken.
func (s *Service) ReportCacheState(stream grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error {
	in := arrivals{updates: make(chan arrival, maxTogether), room: semaphore.NewWeighted(maxBytesWaiting)}
	go in.receive(stream) // ends with the stream's context, and so with this call
	t := taking{s: s, ctx: stream.Context()}
	t.drop = func(f flaw) { s.dropped(t.ctx, rpcReport, t.from, f) }
	defer t.release()
	for u := range in.updates {
		t.add(in.taken(u))
		for more := true; more && !t.full(); {
			select {
			case u, ok := <-in.updates:
				if more = ok; ok {
					t.add(in.taken(u))
				}
			default:
				more = false
			}
		}
		if err := t.hand(stream.Context()); err != nil {
			return s.unavailable(rpcReport, "an update was not taken", err)
		}
	}
	if in.broken != nil {
		panic(in.broken) // where the server's recovery can see it
	}
	if errors.Is(in.end, io.EOF) {
		return stream.SendAndClose(&pb.Ack{Accepted: true, PackedChains: true})
	}
	return in.end
}

// arrivals are the updates of a stream that wait for the index.
type arrivals struct {
	updates chan arrival
	room    *semaphore.Weighted
	// end is the stream's, and broken what receiving panicked with: to be read once
	// updates is closed.
	end    error
	broken any
}

type arrival struct {
	update *pb.CacheStateUpdate
	bytes  int64
}

func (a *arrivals) receive(stream grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) {
	defer close(a.updates)
	defer func() { a.broken = recover() }()
	ctx := stream.Context()
	for {
		u, err := stream.Recv()
		if err == nil {
			next := arrival{u, min(int64(proto.Size(u)), maxBytesWaiting)}
			if err = a.room.Acquire(ctx, next.bytes); err == nil {
				select {
				case a.updates <- next:
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
		}
		if err != nil {
			a.end = err
			return
		}
	}
}

func (a *arrivals) taken(u arrival) *pb.CacheStateUpdate {
	a.room.Release(u.bytes)
	return u.update
}

// taking is the updates of a stream that go to the index together.
type taking struct {
	s       *Service
	ctx     context.Context      //nolint:containedctx // the stream's, which it does not outlive
	drop    func(flaw)           // of a part of from
	from    *pb.CacheStateUpdate // the one that is being added
	used    []*flattener         // as many as there are reports, and spare ones
	reports []*ranking.Report
	holds   int
}

func (t *taking) full() bool { return len(t.reports) >= maxTogether || t.holds >= maxHoldsTogether }

func (t *taking) add(u *pb.CacheStateUpdate) {
	if len(t.used) == len(t.reports) {
		t.used = append(t.used, flatteners.Get().(*flattener))
	}
	fl := t.used[len(t.reports)]
	fl.drop, t.from = t.drop, u
	if r := fl.flatten(u); r != nil {
		if r.Stats != nil {
			t.s.doubt(t.ctx, u, r.Stats)
		}
		t.reports = append(t.reports, r)
		t.holds += len(r.Entries)
	}
}

func (t *taking) hand(ctx context.Context) error {
	if len(t.reports) == 0 {
		return nil
	}
	if err := t.s.index.Report(ctx, t.reports...); err != nil {
		return err
	}
	t.s.metrics.updates.Add(float64(len(t.reports)))
	t.s.metrics.blocksIngested.Add(float64(t.holds))
	t.reports, t.holds = t.reports[:0], 0
	return nil
}

// release gives back the memory, without what producers sent.
func (t *taking) release() {
	for _, fl := range t.used {
		if cap(fl.report.Entries) > largestReportKept {
			continue
		}
		clear(fl.report.Entries[:cap(fl.report.Entries)])
		clear(fl.hashes[:cap(fl.hashes)])
		fl.report = ranking.Report{Entries: fl.report.Entries[:0]}
		fl.stats, fl.drop = ranking.Stats{}, nil
		flatteners.Put(fl)
	}
}
