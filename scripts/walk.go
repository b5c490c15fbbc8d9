package scripts

import "fmt"

// WalkReply is one atomic view of the leading blocks of a chain.
type WalkReply struct {
	// NowMS is Redis' time, Unix ms.
	NowMS int64
	// HeadID names the head that the records are to be read with; "" = nothing was ever written.
	HeadID string
	// LogID is the last log entry of the view; "" = none.
	LogID string
	// Head is nil if the caller's was current.
	Head *RawHead
	// Records has the hold records of each leading block; as many as were held
	// without a gap. What the chain has beyond was not looked for.
	Records []string
}

// RawHead is a partition's head as Redis keeps it: fields and values in turn.
type RawHead struct {
	Replicas, Serving, Spaces []string
	// Dirty: a clear left dead records that no full sweep has passed since.
	Dirty bool
}

// Walk makes the call of walk.lua. headID is the head that the caller has, "" for
// none; with no hashes it reads the head alone.
func Walk(p *Partition, blocks, headID string, hashes [][]byte) *Call {
	args := make([]any, 1, 1+len(hashes))
	args[0] = headID
	for _, h := range hashes {
		args = append(args, h)
	}
	return &Call{
		script: walkScript,
		keys:   []string{p.Head, p.Replicas, p.Serving, p.Spaces, blocks},
		args:   args,
	}
}

// Walked reads the reply of Walk.
func (c *Call) Walked() (w WalkReply, err error) {
	raw, err := c.reply(4)
	if err != nil {
		return w, err
	}
	var ok [3]bool
	w.NowMS, ok[0] = raw[0].(int64)
	w.HeadID, ok[1] = raw[1].(string)
	w.LogID, ok[2] = raw[2].(string)
	if ok != [3]bool{true, true, true} {
		return w, fmt.Errorf("walk: reply starts with %T, %T, %T, want a time and two ids", raw[0], raw[1], raw[2])
	}
	if raw[3] != nil {
		if w.Head, err = rawHead(raw[3]); err != nil {
			return w, err
		}
	}
	w.Records = make([]string, 0, blocksIn(raw[4:]))
	for _, piece := range raw[4:] {
		values, _ := piece.([]any)
		for _, v := range values {
			record, held := v.(string)
			if !held {
				return w, nil
			}
			w.Records = append(w.Records, record)
		}
	}
	return w, nil
}

func blocksIn(pieces []any) (n int) {
	for _, p := range pieces {
		values, _ := p.([]any)
		n += len(values)
	}
	return n
}

func rawHead(v any) (*RawHead, error) {
	parts, ok := v.([]any)
	if !ok || len(parts) != 4 {
		return nil, fmt.Errorf("walk: head is %T with %d parts, want 4", v, len(parts))
	}
	var h RawHead
	for i, dst := range []*[]string{&h.Replicas, &h.Serving, &h.Spaces} {
		list, ok := texts(parts[i])
		if !ok || len(list)%2 != 0 {
			return nil, fmt.Errorf("walk: part %d of the head is no list of fields and values", i)
		}
		*dst = list
	}
	// "1" from a clear, or the mark of the sweep that is on its way.
	dirty, _ := parts[3].(string)
	h.Dirty = dirty != ""
	return &h, nil
}
