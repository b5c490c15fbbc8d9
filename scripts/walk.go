package scripts

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

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
	// Records has the hold records of each leading block, as many as are held
	// without a gap.
	Records []string
}

// RawHead is a partition's head as Redis keeps it: fields and values in turn.
type RawHead struct {
	Replicas, Serving, Spaces []string
	// Dirty: a clear left dead records that no full sweep has passed since.
	Dirty bool
}

// TxPiper sends commands in one round trip and one MULTI; redis.UniversalClient is one.
type TxPiper interface {
	TxPipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// Walk reads the records of a chain's leading blocks and the head to read them with,
// in one round trip and as of one moment. headID is the head that the caller has, ""
// for none; with no hashes it reads the head alone.
//
// It is a transaction of head.lua and a plain HMGET of all hashes. A transaction does
// not stop at a command that fails, and this one writes nothing: if the script was
// unknown, all of it is asked again with the text.
func Walk(ctx context.Context, rdb TxPiper, p *Partition, blocks, headID string, hashes [][]byte) (w WalkReply, err error) {
	keys := []string{p.Head, p.Replicas, p.Serving, p.Spaces}
	head, records, err := walk(ctx, rdb, blocks, hashes, func(tx redis.Pipeliner) *redis.Cmd {
		return tx.EvalSha(ctx, headScript.sha, keys, headID)
	})
	if head != nil && redis.HasErrorPrefix(head.Err(), "NOSCRIPT") {
		head, records, err = walk(ctx, rdb, blocks, hashes, func(tx redis.Pipeliner) *redis.Cmd {
			return tx.Eval(ctx, headScript.text, keys, headID)
		})
	}
	if err != nil {
		return w, err
	}
	if err := w.readHead(head); err != nil {
		return w, err
	}
	if records != nil {
		w.readRecords(records.Val())
	}
	return w, nil
}

func walk(ctx context.Context, rdb TxPiper, blocks string, hashes [][]byte, head func(redis.Pipeliner) *redis.Cmd) (h *redis.Cmd, records *redis.SliceCmd, err error) {
	_, err = rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		h = head(tx)
		if len(hashes) > 0 {
			args := make([]any, 2, 2+len(hashes))
			args[0], args[1] = "hmget", blocks
			for _, hash := range hashes {
				args = append(args, hash)
			}
			records = redis.NewSliceCmd(ctx, args...)
			return tx.Process(ctx, records)
		}
		return nil
	})
	if records != nil && records.Err() != nil && h.Err() == nil {
		err = fmt.Errorf("key %s: %w", blocks, records.Err())
	}
	return h, records, err
}

func (w *WalkReply) readHead(cmd *redis.Cmd) error {
	raw, err := cmd.Slice()
	if err != nil {
		return err
	}
	if len(raw) < 3 {
		return fmt.Errorf("walk: reply has %d elements, want 4", len(raw))
	}
	var ok [3]bool
	w.NowMS, ok[0] = raw[0].(int64)
	w.HeadID, ok[1] = raw[1].(string)
	w.LogID, ok[2] = raw[2].(string)
	if ok != [3]bool{true, true, true} {
		return fmt.Errorf("walk: reply starts with %T, %T, %T, want a time and two ids", raw[0], raw[1], raw[2])
	}
	if len(raw) > 3 && raw[3] != nil {
		w.Head, err = rawHead(raw[3])
	}
	return err
}

// readRecords keeps the blocks before the first that nobody holds.
func (w *WalkReply) readRecords(values []any) {
	w.Records = make([]string, 0, len(values))
	for _, v := range values {
		record, held := v.(string)
		if !held {
			return
		}
		w.Records = append(w.Records, record)
	}
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
