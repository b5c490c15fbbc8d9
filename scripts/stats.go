package scripts

// StatsArgs names the replica that says something of itself.
type StatsArgs struct {
	Partition
	Upkeep
	Replica, Tenant, Model string
	// At is ms since 2020, or Now.
	At int64
}

// Stats makes the call of stats.lua that replaces a replica's stats with the encoded ones.
func Stats(a *StatsArgs, encoded []byte) *Call { return a.call("S", encoded) }

// Alive makes the call of stats.lua that refreshes the alive time of known stats.
func Alive(a *StatsArgs) *Call { return a.call("A", "") }

// Lease makes the call of stats.lua after which the replica's lease runs out in ms.
func Lease(a *StatsArgs, ms int64) *Call { return a.call("L", ms) }

func (a *StatsArgs) call(what string, payload any) *Call {
	return &Call{
		script: statsScript,
		keys:   []string{a.Head, a.Replicas, a.Serving, a.Log},
		args:   []any{a.Replica, a.Tenant, a.Model, a.At, a.HoldTTLMS, a.LogLength, what, payload},
	}
}

// StatsWritten reads the reply of Stats, Alive and Lease.
func (c *Call) StatsWritten() (r Written, err error) {
	var number int64
	err = c.ints(&r.NowMS, &number, &r.Writes, &r.Garbage)
	r.Number = uint32(number)
	return r, err
}
