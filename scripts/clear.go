package scripts

// ClearReply is what a clear returns.
type ClearReply struct {
	NowMS int64
	// Number is the retired one; 0 = no such replica.
	Number uint32
	// Empty: the partition has no hold any more.
	Empty bool
}

// Clear makes the call of clear.lua: the replica's number is retired.
func Clear(p *Partition, u Upkeep, replica string) *Call {
	return &Call{
		script: clearScript,
		keys:   []string{p.Head, p.Replicas, p.Serving, p.Spaces, p.Log},
		args:   []any{replica, u.HoldTTLMS, u.LogLength},
	}
}

// Cleared reads the reply of Clear.
func (c *Call) Cleared() (r ClearReply, err error) {
	var number, empty int64
	err = c.ints(&r.NowMS, &number, &empty)
	r.Number, r.Empty = uint32(number), empty == 1
	return r, err
}
