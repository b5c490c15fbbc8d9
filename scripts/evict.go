package scripts

import "fmt"

// EvictArgs says what one replica no longer holds.
type EvictArgs struct {
	Partition
	Upkeep
	Replica string
	// At is ms since 2020, or Now.
	At int64
	// Blocks are the keys of the spaces to evict from, Fields their fields in Spaces.
	Blocks, Fields []string
	// All: Fields and Others together are every space that the caller knows of, and the
	// eviction must not happen if there are others.
	All    bool
	Others []string
	Hashes [][]byte
}

// EvictReply is what an eviction returns.
type EvictReply struct {
	Written
	// Removed counts records.
	Removed int64
	// Empty: the partition has no hold any more.
	Empty bool
	// Stale: nothing was done, because the spaces are not those that the caller knows, but Spaces.
	Stale  bool
	Spaces []string
}

// Evict makes the call of evict.lua.
func Evict(a *EvictArgs) *Call {
	others := -1
	if a.All {
		others = len(a.Others)
	}
	args := make([]any, 0, 5+len(a.Fields)+len(a.Others)+len(a.Hashes))
	args = append(args, a.Replica, a.At, a.HoldTTLMS, a.LogLength, others)
	for _, f := range a.Fields {
		args = append(args, f)
	}
	if a.All {
		for _, f := range a.Others {
			args = append(args, f)
		}
	}
	for _, h := range a.Hashes {
		args = append(args, h)
	}
	keys := append([]string{a.Head, a.Replicas, a.Serving, a.Spaces, a.Log}, a.Blocks...)
	return &Call{script: evictScript, keys: keys, args: args}
}

// Evicted reads the reply of Evict.
func (c *Call) Evicted() (r EvictReply, err error) {
	raw, err := c.reply(3)
	if err != nil {
		return r, err
	}
	if raw[1] == int64(-1) {
		fields, ok := texts(raw[2])
		if !ok || len(fields)%2 != 0 {
			return r, fmt.Errorf("evict: spaces are %T, want fields and values", raw[2])
		}
		r.Stale = true
		for i := 0; i < len(fields); i += 2 {
			r.Spaces = append(r.Spaces, fields[i])
		}
		return r, nil
	}
	var number, empty int64
	err = c.ints(&r.NowMS, &number, &r.Writes, &r.Removed, &empty)
	r.Number, r.Empty = uint32(number), empty == 1
	return r, err
}

// texts reads an array of strings.
func texts(v any) ([]string, bool) {
	list, ok := v.([]any)
	out := make([]string, len(list))
	for i := range list {
		if out[i], ok = list[i].(string); !ok {
			return nil, false
		}
	}
	return out, ok
}
