package follow

import (
	"cmp"
	"log/slog"
	"time"

	"inferencecache.io/lookuptier/sidecar/events"
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

func (o Options) withDefaults() Options {
	o.Silence = cmp.Or(o.Silence, DefaultSilence)
	o.Probe = cmp.Or(o.Probe, DefaultProbe)
	o.ReplayBytes = cmp.Or(o.ReplayBytes, DefaultReplayBytes)
	o.Queue = cmp.Or(o.Queue, DefaultQueue)
	o.QueueBytes = cmp.Or(o.QueueBytes, DefaultQueueBytes)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
