package scripts

// Partition names the keys that a script may touch besides blocks.
type Partition struct {
	Head, Replicas, Serving, Spaces, Log string
}

// Upkeep is what every write keeps in order.
type Upkeep struct {
	// HoldTTLMS is how old a hold may become, milliseconds.
	HoldTTLMS int64
	// LogLength is how many entries the log keeps, roughly.
	LogLength int64
}

// ReportArgs is one replica's delta in one space.
type ReportArgs struct {
	Partition
	Upkeep
	Blocks                 string // key of the space's blocks
	Replica, Tenant, Model string
	SpaceField             string
	// Seen is ms since 2020, or Now.
	Seen int64
	// Hashes, 1 to MaxHashes of them; of a hash that stands twice the last counts.
	Hashes []any
	// Tails has u8 tier u24 tokens for each hash.
	Tails []byte
	// Logged has u8(len hash) hash u8 tier u24 tokens for each hash.
	Logged []byte
}

// Written is what the scripts that name one replica return.
type Written struct {
	// NowMS is Redis' time, Unix ms.
	NowMS int64
	// Number is the replica's generation; 0 = no such replica.
	Number uint32
	// Writes is the record's count, this write included.
	Writes int64
	// Garbage counts unreadable values that the write replaced.
	Garbage int64
}

// ReportReply is what a report returns.
type ReportReply struct {
	Written
	// WasEmpty: the partition had no hold before.
	WasEmpty bool
}

// Report makes the call of report.lua.
func Report(a *ReportArgs) *Call {
	args := make([]any, 0, 9+len(a.Hashes))
	args = append(args, a.Replica, a.Tenant, a.Model, a.SpaceField, a.Seen, a.HoldTTLMS, a.LogLength, a.Logged, a.Tails)
	return &Call{
		script: reportScript,
		keys:   []string{a.Head, a.Replicas, a.Serving, a.Spaces, a.Log, a.Blocks},
		args:   append(args, a.Hashes...),
	}
}

// Reported reads the reply of Report.
func (c *Call) Reported() (r ReportReply, err error) {
	var number, empty int64
	err = c.ints(&r.NowMS, &number, &r.Writes, &empty, &r.Garbage)
	r.Number, r.WasEmpty = uint32(number), empty == 1
	return r, err
}
