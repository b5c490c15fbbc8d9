package follow

import "sync/atomic"

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
