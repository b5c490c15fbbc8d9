package store

import (
	"fmt"

	"inferencecache.io/lookuptier/ranking"
)

// LogField is the one field of a log entry; its value is the blob that DecodeLog reads.
const LogField = "e"

// LogOp says what a log entry changed.
type LogOp byte

const (
	// OpReport: Number holds Holds in Space, all seen at SeenMS.
	OpReport LogOp = 'R'
	// OpEvict: Number holds none of Hashes in any of Spaces.
	OpEvict LogOp = 'E'
	// OpClear: Number is retired and Replica unknown; all records of Number are dead.
	OpClear LogOp = 'C'
	// OpStats: Replica's record is now Record (stats, sign of life, lease).
	OpStats LogOp = 'S'
	// OpSweep: dead and expired records were dropped. No reader counted them, so
	// there is nothing to apply but the head.
	OpSweep LogOp = 'W'
)

const (
	flagHeadChanged = 1 << 0
	flagCarried     = 1 << 1
)

// LogEntry is one change of a partition, decoded. Its byte slices point into the blob.
type LogEntry struct {
	Op LogOp
	// HeadChanged: the head's id is this entry's id from here on.
	HeadChanged bool
	// Carried, with HeadChanged: the entry alone tells how the head changed (OpStats:
	// put Record; OpClear: remove Replica and Number). Otherwise ask for the head again.
	Carried bool
	// Prev is the id of the entry before; "" for the first. A follower that stands
	// at another id has missed something.
	Prev string

	Number  uint32
	Space   string // SpaceSuffix
	Spaces  []string
	SeenMS  int64
	Holds   []LoggedHold
	Hashes  [][]byte
	Replica string
	Record  ReplicaRecord
}

// LoggedHold is one hold of an OpReport.
type LoggedHold struct {
	Hash   []byte
	Tier   ranking.Tier
	Tokens int32
}

// DecodeLog reads the blob of a log entry; anything that is none is ErrGarbage.
func DecodeLog(blob []byte) (LogEntry, error) {
	c := cursor{rest: blob}
	e := LogEntry{Op: LogOp(c.u8())}
	flags := c.u8()
	e.HeadChanged = flags&flagHeadChanged != 0
	e.Carried = flags&flagCarried != 0
	e.Prev = string(c.take(int(c.u8())))
	switch e.Op {
	case OpReport:
		e.Space = string(c.take(spaceSuffixLen))
		e.Number = c.u24()
		e.SeenMS = EpochMS + c.u40()
		for c.more() {
			e.Holds = append(e.Holds, LoggedHold{Hash: c.take(int(c.u8())), Tier: tierOf(c.u8()), Tokens: int32(c.u24())})
		}
	case OpEvict:
		e.Number = c.u24()
		for n := int(c.u16()); n > 0 && !c.short; n-- {
			e.Spaces = append(e.Spaces, string(c.take(spaceSuffixLen)))
		}
		for c.more() {
			e.Hashes = append(e.Hashes, c.take(int(c.u8())))
		}
	case OpClear:
		e.Number = c.u24()
		e.Replica = string(c.take(len(c.rest)))
	case OpStats:
		e.Replica = string(c.take(int(c.u16())))
		record, err := DecodeReplica(c.take(len(c.rest)))
		if err != nil {
			return LogEntry{}, fmt.Errorf("log entry S: %w", err)
		}
		e.Record, e.Number = record, record.Number
	case OpSweep:
		// What follows is of no use to a follower.
	default:
		return LogEntry{}, fmt.Errorf("%w: log entry: unknown operation %q", ErrGarbage, byte(e.Op))
	}
	if c.short {
		return LogEntry{}, fmt.Errorf("%w: log entry %c: ends early", ErrGarbage, e.Op)
	}
	return e, nil
}

// appendLoggedHold appends one hold in the form that DecodeLog reads.
func appendLoggedHold(dst, hash []byte, t ranking.Tier, tokens int32) []byte {
	return appendTail(appendHash(dst, hash), t, tokens)
}

// appendHash appends u8(len) hash; a hash is at most 255 bytes.
func appendHash(dst, hash []byte) []byte {
	return append(append(dst, byte(len(hash))), hash...)
}

// cursor reads a blob front to back; once it ran short it yields zeros.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) more() bool { return len(c.rest) > 0 && !c.short }

func (c *cursor) take(n int) []byte {
	if len(c.rest) < n {
		c.short, c.rest = true, nil
		return nil
	}
	head := c.rest[:n:n]
	c.rest = c.rest[n:]
	return head
}

// fixed is take for numbers: n ≤ 5 bytes, zeros when short.
func (c *cursor) fixed(n int) []byte {
	if b := c.take(n); b != nil {
		return b
	}
	return make([]byte, n)
}

func (c *cursor) u8() byte    { return c.fixed(1)[0] }
func (c *cursor) u16() uint16 { b := c.fixed(2); return uint16(b[0])<<8 | uint16(b[1]) }
func (c *cursor) u24() uint32 { return u24(c.fixed(3), 0) }
func (c *cursor) u40() int64  { return u40(c.fixed(5), 0) }
