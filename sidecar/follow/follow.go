package follow

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/semaphore"

	"inferencecache.io/lookuptier/sidecar/events"
	"inferencecache.io/lookuptier/sidecar/zmtp"
)

// Sink takes what an engine said. All its methods are called from one goroutine.
type Sink interface {
	// Apply takes the next batch, which is lent for the call, and returns how many
	// of its blocks continue one that is not known.
	Apply(b *events.Batch) (orphans int)
	// Joined: the past that can be had was applied. complete tells that it was all of it.
	Joined(complete bool)
	// Lost: events are missing here and cannot be had.
	Lost()
	// Restarted: the engine began anew, with an empty cache.
	Restarted()
	// Replaying brackets batches that were applied before and are applied again.
	Replaying(on bool)
	// Live tells whether what was applied is what the engine holds now. It is false
	// at first, and while the engine cannot be reached.
	Live(live bool)
}

// Defaults of Options.
const (
	DefaultSilence     = 5 * time.Second
	DefaultReplayBytes = 128 << 20
	DefaultQueueBytes  = 64 << 20
	DefaultQueue       = 4096
	DefaultProbe       = 15 * time.Second
)

// Options of a Follower. Only Endpoint is required.
type Options struct {
	// Endpoint publishes events; Replay answers replays, "" = there is none.
	Endpoint, Replay string
	// Topic filters batches by the beginning of their topic.
	Topic string
	// Silence is how long a replay may say nothing; 0 = DefaultSilence.
	Silence time.Duration
	// ReplayBytes bounds a replay of everything, which is collected before it is applied; 0 = DefaultReplayBytes.
	ReplayBytes int
	// Queue and QueueBytes bound what waits while a replay runs; more waits at the engine.
	// 0 = DefaultQueue, DefaultQueueBytes.
	Queue      int
	QueueBytes int64
	// Probe is how long the stream may be silent before the replay socket is asked whether
	// something was missed; 0 = DefaultProbe.
	Probe time.Duration
	// Heartbeat of the connection, see zmtp.Config; 0 = its default.
	Heartbeat time.Duration
	// Logger gets what an operator should know; nil = slog.Default().
	Logger *slog.Logger
}

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

// Counts are a Follower's cumulative counters, and two gauges.
type Counts struct {
	Batches, Bytes, Events, UnknownEvents, UnknownFields atomic.Int64
	Malformed, TooLarge                                  atomic.Int64
	Gaps, MissedBatches, LostBatches, Losses             atomic.Int64
	Replays, ReplayFailures, ReplayedBatches             atomic.Int64
	Duplicates, Restarts, Connects, Disconnects          atomic.Int64
	// Lag is how far the newest batch's time stamp lay behind this machine's clock, in nanoseconds.
	Lag atomic.Int64
	// Live is 1 while what was applied is what the engine holds.
	Live atomic.Int64
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
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Silence, DefaultSilence)
	def(&o.Probe, DefaultProbe)
	if o.ReplayBytes == 0 {
		o.ReplayBytes = DefaultReplayBytes
	}
	if o.Queue == 0 {
		o.Queue = DefaultQueue
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = DefaultQueueBytes
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
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
