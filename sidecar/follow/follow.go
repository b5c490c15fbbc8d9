package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/semaphore"

	"inferencecache.io/lookuptier/sidecar/events"
	"inferencecache.io/lookuptier/sidecar/zmtp"
)

// Follower follows one endpoint.
type Follower struct {
	opts   Options
	log    *slog.Logger
	sink   Sink
	queue  chan message
	budget *semaphore.Weighted
	dec    events.Decoder
	counts Counts

	// epoch numbers connections. In one of them numbers only grow.
	epoch uint64
	up    bool
	// next is the number wanted; all before it was applied or lost.
	next   uint64
	joined bool
	// late: the first batch that could be had was not the engine's first.
	late bool
	// last names batch next-1, if it was applied.
	last struct {
		sum   uint64
		ts    float64
		known bool
	}
	// unproved: the connection is new, and nothing yet showed that its engine is the same.
	unproved bool
	live     bool
	// seen is one more than the last number that came live in this epoch. What is below replayed
	// may still come live in it, although it was applied.
	seen, replayed uint64
	whole          wholeReplay
	quiet          time.Time
}

// wholeReplay paces replays of everything.
type wholeReplay struct {
	wait  time.Duration
	after time.Time
}

// message is a batch, or a change of the connection.
type message struct {
	kind    messageKind
	epoch   uint64
	seq     uint64
	payload []byte
	err     error
}

type messageKind uint8

const (
	gotBatch messageKind = iota
	gotUp
	gotDown
	gotGarbage
)

// New makes a Follower; Run runs it. An endpoint that makes no sense is an error.
func New(o Options, sink Sink) (*Follower, error) {
	if _, _, err := zmtp.ParseEndpoint(o.Endpoint); err != nil {
		return nil, err
	}
	if o.Replay != "" {
		if _, _, err := zmtp.ParseEndpoint(o.Replay); err != nil {
			return nil, err
		}
	}
	o = o.withDefaults()
	return &Follower{
		opts: o, log: o.Logger.With("engine", o.Endpoint), sink: sink,
		queue: make(chan message, o.Queue), budget: semaphore.NewWeighted(o.QueueBytes),
	}, nil
}

// Counts are live: read them at any time.
func (f *Follower) Counts() *Counts { return &f.counts }

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var reader sync.WaitGroup
	reader.Go(func() { f.read(ctx) })
	defer reader.Wait()
	// A batch that was published while the subscription was on its way is in no stream.
	// So the replay socket is asked soon after a connection, and whenever it is silent.
	probe := time.NewTimer(f.opts.Probe)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-f.queue:
			f.handle(ctx, &m)
			f.budget.Release(m.weight(f.opts.QueueBytes))
			if m.kind == gotUp {
				probe.Reset(min(500*time.Millisecond, f.opts.Probe))
			}
			f.quiet = time.Now()
		case <-probe.C:
			if f.up && time.Since(f.quiet) >= min(400*time.Millisecond, f.opts.Probe) && len(f.queue) == 0 {
				f.probe(ctx)
			}
			probe.Reset(f.opts.Probe)
		}
	}
}

func (m *message) weight(limit int64) int64 { return min(int64(len(m.payload))+256, limit) }

func (f *Follower) handle(ctx context.Context, m *message) {
	switch m.kind {
	case gotUp:
		f.epoch, f.up, f.seen, f.replayed = m.epoch, true, 0, 0
		f.counts.Connects.Add(1)
		f.log.Info("connected to the engine")
		f.connected(ctx)
	case gotDown:
		if f.up {
			f.counts.Disconnects.Add(1)
			f.log.Warn("lost the connection to the engine", "error", m.err)
		} else {
			f.log.Debug("cannot reach the engine", "error", m.err)
		}
		f.up = false
		f.setLive(false)
	case gotGarbage:
		f.counts.Malformed.Add(1)
		f.log.Warn("a message that is no batch was dropped", "error", m.err)
	case gotBatch:
		f.batch(ctx, m)
	}
}

// connected finds out where the engine stands.
func (f *Follower) connected(ctx context.Context) {
	f.unproved = f.joined
	err := f.fetch(ctx)
	if err != nil {
		f.log.Warn("replay failed: what the engine said before it says something again is unknown", "error", err)
	}
	if !f.joined {
		f.joined = true
		f.sink.Joined(err == nil && f.opts.Replay != "" && !f.late)
	}
	// Unproved, the next batch will tell.
	f.setLive(f.up && !f.unproved)
}

// batch takes a live one.
func (f *Follower) batch(ctx context.Context, m *message) {
	if m.seq < f.seen || m.seq < f.next && m.seq >= f.replayed {
		// In one connection numbers only grow, but for what a replay brought already.
		f.restart(ctx, "the sequence began again", "sequence", m.seq, "expected", f.next)
	}
	f.seen = m.seq + 1
	if m.seq > f.next {
		f.gap(ctx, m.seq)
	}
	if m.seq < f.next {
		f.duplicate()
		return
	}
	b, err := f.decode(m.payload)
	if err == nil && f.turnedBack(b) {
		f.restart(ctx, "the engine's clock went back", "from", f.last.ts, "to", b.TS)
		f.seen = m.seq + 1
		if m.seq > f.next {
			f.lose(m.seq)
		}
		if m.seq < f.next {
			f.duplicate()
			return
		}
		b, err = f.decode(m.payload) // the replay used the decoder
	}
	f.unproved = false
	if err != nil {
		f.malformed(ctx, m, err)
	} else {
		if b.TS > 0 {
			f.counts.Lag.Store(time.Now().UnixNano() - int64(b.TS*1e9))
		}
		if orphans := f.apply(m.seq, m.payload, b); orphans > 0 {
			f.replayAll(ctx, orphans)
		}
	}
	f.setLive(f.up)
}

// duplicate: a replay was faster.
func (f *Follower) duplicate() {
	f.counts.Duplicates.Add(1)
	f.proved()
}

// proved: the engine behind the connection is the one whose batches were applied.
func (f *Follower) proved() {
	f.unproved = false
	f.replayed = max(f.replayed, f.next)
	f.setLive(f.up && f.joined)
}

// gap fetches the batches from next to before seq.
func (f *Follower) gap(ctx context.Context, seq uint64) {
	if !f.fresh() {
		f.counts.Gaps.Add(1)
		f.counts.MissedBatches.Add(int64(seq - f.next))
		f.log.Info("batches are missing", "from", f.next, "before", seq)
	}
	if err := f.fetch(ctx); err != nil {
		f.log.Warn("replay failed", "error", err)
	}
	if f.next < seq {
		f.lose(seq)
	}
}

// fresh: nothing of this engine was applied or lost yet.
func (f *Follower) fresh() bool { return f.next == 0 && !f.last.known }

// lose gives up on all before seq. Before anything was applied that is no loss, but a late start.
func (f *Follower) lose(seq uint64) {
	if f.fresh() {
		f.next, f.late = seq, true
		return
	}
	f.counts.LostBatches.Add(int64(seq - f.next))
	f.counts.Losses.Add(1)
	f.log.Warn("batches are lost: only blocks stored or built upon from now on are certain", "from", f.next, "before", seq)
	f.next = seq
	f.last.known = false
	f.whole = wholeReplay{}
	f.sink.Lost()
}

func (f *Follower) restart(ctx context.Context, why string, args ...any) {
	f.counts.Restarts.Add(1)
	f.log.Warn("the engine restarted: "+why, args...)
	f.next, f.seen, f.replayed, f.last.known, f.last.ts = 0, 0, 0, false, 0
	f.unproved, f.late = false, false
	f.whole = wholeReplay{}
	f.sink.Restarted()
	if err := f.fetch(ctx); err != nil {
		f.log.Warn("replay failed", "error", err)
	}
}

// turnedBack: a time stamp before the last one's cannot come from the same engine. A second
// is granted to whoever sets its clock.
func (f *Follower) turnedBack(b *events.Batch) bool {
	return b.TS > 0 && f.last.ts > 0 && b.TS < f.last.ts-1
}

func (f *Follower) decode(payload []byte) (*events.Batch, error) {
	f.counts.Bytes.Add(int64(len(payload)))
	b, err := f.dec.Decode(payload)
	if err == nil {
		f.counts.Events.Add(int64(len(b.Events)))
		f.counts.UnknownEvents.Add(int64(b.UnknownEvents))
		f.counts.UnknownFields.Add(int64(b.UnknownFields))
	}
	return b, err
}

// apply hands a batch on and makes it the last.
func (f *Follower) apply(seq uint64, payload []byte, b *events.Batch) (orphans int) {
	f.counts.Batches.Add(1)
	f.next = seq + 1
	f.last.known, f.last.sum = true, xxh3.Hash(payload)
	if b.TS > 0 {
		f.last.ts = b.TS
	}
	return f.sink.Apply(b)
}

func (f *Follower) setLive(live bool) {
	if live == f.live {
		return
	}
	f.live = live
	f.counts.Live.Store(int64(b2i(live)))
	f.sink.Live(live)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Endpoint is what the Follower follows.
func (f *Follower) Endpoint() string { return f.opts.Endpoint }
