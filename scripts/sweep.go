package scripts

import "fmt"

// SweepLock says who sweeps. The zero LockMS goes ahead without a lock.
type SweepLock struct {
	// Key of the lock, in the partition's slot.
	Key string
	// Token is unique to one pass of one sweeper, also if it takes no lock.
	Token string
	// LockMS is how long the lock lasts unless the pass goes on, milliseconds.
	LockMS int64
}

// SweepState tells how a step of a pass went.
type SweepState int64

const (
	// SweepLost: another sweeper has the lock.
	SweepLost SweepState = -1
	// SweepRecent: the last full pass is recent enough.
	SweepRecent SweepState = 0
	// SweepDone: the step was done.
	SweepDone SweepState = 1
)

// SweepBeginArgs opens a pass.
type SweepBeginArgs struct {
	Partition
	SweepLock
	// DueMS: with a lock, a full pass that began less than this ago makes another needless.
	DueMS int64
	// GraceMS is for how long a lease must have run out to retire its replica.
	GraceMS   int64
	LogLength int64
}

// SweepBegun is the reply of SweepBegin.
type SweepBegun struct {
	State SweepState
	// NowMS is Redis' time, LastMS when the last full pass began; Unix ms, 0 = never.
	NowMS, LastMS int64
	// Retired counts replicas.
	Retired int64
	// Fields are the fields of the spaces, none unless done.
	Fields []string
}

// SweepBegin makes the call of sweep_begin.lua.
func SweepBegin(a *SweepBeginArgs) *Call {
	return &Call{
		script: sweepBeginScript,
		keys:   []string{a.Head, a.Replicas, a.Serving, a.Spaces, a.Log, a.Key},
		args:   []any{a.Token, a.LockMS, a.DueMS, a.GraceMS, a.LogLength},
	}
}

// Begun reads the reply of SweepBegin.
func (c *Call) Begun() (r SweepBegun, err error) {
	if err = c.ints((*int64)(&r.State), &r.NowMS, &r.LastMS, &r.Retired); err != nil {
		return r, err
	}
	raw, err := c.reply(5)
	if err != nil {
		return r, err
	}
	var ok bool
	if r.Fields, ok = texts(raw[4]); !ok {
		return r, fmt.Errorf("sweep begin: spaces are %T, want strings", raw[4])
	}
	return r, nil
}

// SweepArgs names one slice of one space.
type SweepArgs struct {
	Partition
	SweepLock
	Blocks, Field string
	// HoldTTLMS is the age at which a hold is expired, milliseconds.
	HoldTTLMS int64
	LogLength int64
	// Cursor is "0" for the first slice, then that of the reply before.
	Cursor string
	// Count is about how many blocks to look at.
	Count int
}

// SweepReply is what one slice came to.
type SweepReply struct {
	State SweepState
	// Cursor is "0" when the space is through.
	Cursor string
	// Expired and Retired count records, Garbage unreadable values, Looked the
	// blocks that were looked at, Gone those that went.
	Expired, Retired, Garbage, Looked, Gone int64
}

// Sweep makes the call of sweep.lua.
func Sweep(a *SweepArgs) *Call {
	return &Call{
		script: sweepScript,
		keys:   []string{a.Head, a.Replicas, a.Serving, a.Spaces, a.Log, a.Key, a.Blocks},
		args:   []any{a.Token, a.LockMS, a.Field, a.HoldTTLMS, a.LogLength, a.Cursor, a.Count},
	}
}

// Swept reads the reply of Sweep.
func (c *Call) Swept() (r SweepReply, err error) {
	raw, err := c.reply(7)
	if err != nil {
		return r, err
	}
	var ok bool
	if r.Cursor, ok = raw[1].(string); !ok {
		return r, fmt.Errorf("sweep: cursor is %T, want a string", raw[1])
	}
	raw[1] = int64(0)
	var cursor int64
	err = c.ints((*int64)(&r.State), &cursor, &r.Expired, &r.Retired, &r.Garbage, &r.Looked, &r.Gone)
	return r, err
}

// SweepEndArgs closes a pass.
type SweepEndArgs struct {
	Partition
	SweepLock
	// ReplicaTTLMS is the age at which a replica without holds is forgotten.
	ReplicaTTLMS int64
	Upkeep
	// LogAgeMS is how old a log entry may become, milliseconds.
	LogAgeMS int64
	// BeganMS is SweepBegun.NowMS.
	BeganMS int64
	// Blocks are the keys of the spaces of the pass, Fields their fields in Spaces.
	Blocks, Fields []string
}

// SweepEnded is what a finished pass leaves.
type SweepEnded struct {
	State SweepState
	Left  Has
	// Replicas and Spaces were forgotten, Repaired counts were put right.
	Replicas, Repaired, Spaces int64
	// Blocks is how many blocks are left.
	Blocks int64
}

// SweepEnd makes the call of sweep_end.lua.
func SweepEnd(a *SweepEndArgs) *Call {
	locked := 0
	if a.LockMS > 0 {
		locked = 1
	}
	args := make([]any, 0, 7+len(a.Fields))
	args = append(args, a.Token, locked, a.ReplicaTTLMS, a.HoldTTLMS, a.LogLength, a.LogAgeMS, a.BeganMS)
	for _, f := range a.Fields {
		args = append(args, f)
	}
	keys := append([]string{a.Head, a.Replicas, a.Serving, a.Spaces, a.Log, a.Key}, a.Blocks...)
	return &Call{script: sweepEndScript, keys: keys, args: args}
}

// SweepEnded reads the reply of SweepEnd.
func (c *Call) SweepEnded() (r SweepEnded, err error) {
	var left int64
	err = c.ints((*int64)(&r.State), &left, &r.Replicas, &r.Repaired, &r.Blocks, &r.Spaces)
	r.Left = Has(left)
	return r, err
}
