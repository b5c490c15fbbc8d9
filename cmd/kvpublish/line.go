package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// batch is one line of the file:
//
//	{"events": [...], "ts": 1700000000.5, "rank": 0, "shape": "map", "after_ms": 5, "swallow": true}
//	{"raw": "c1", "swallow": true}
//
// Only events (or raw, the payload itself in hexadecimal) is needed. An event is sent in the
// form it stands there, array or object, and {"$hex": "…"} in it is sent as bytes. ts is
// now if it is left out; shape is that of the batch, array if it is left out; after_ms is a pause
// before it; a batch to swallow is numbered and can be replayed, but is not sent.
type batch struct {
	Events  []any        `json:"events"`
	TS      *json.Number `json:"ts"`
	Rank    *int         `json:"rank"`
	Shape   string       `json:"shape"`
	AfterMS int          `json:"after_ms"`
	Swallow bool         `json:"swallow"`
	Raw     string       `json:"raw"`

	after   time.Duration
	swallow bool
	raw     []byte
}

func parseLine(line []byte) (*batch, error) {
	b := &batch{}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber() // a hash does not fit into a float
	dec.DisallowUnknownFields()
	if err := dec.Decode(b); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	if b.Shape != "" && b.Shape != "map" && b.Shape != "array" {
		return nil, fmt.Errorf("shape %q: write array or map", b.Shape)
	}
	if b.AfterMS < 0 {
		return nil, fmt.Errorf("after_ms %d: write 0 or more", b.AfterMS)
	}
	if (b.Events == nil) == (b.Raw == "") {
		return nil, errors.New("write either events or raw")
	}
	var err error
	if b.raw, err = hex.DecodeString(b.Raw); err != nil {
		return nil, fmt.Errorf("raw: %w", err)
	}
	b.after, b.swallow = time.Duration(b.AfterMS)*time.Millisecond, b.Swallow
	return b, nil
}

// payload encodes the batch.
func (b *batch) payload(now time.Time) ([]byte, error) {
	if b.Events == nil {
		return b.raw, nil
	}
	ts := float64(now.UnixNano()) / 1e9
	if b.TS != nil {
		var err error
		if ts, err = b.TS.Float64(); err != nil {
			return nil, fmt.Errorf("ts: %w", err)
		}
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	write := func(v any) error { return encode(enc, v) }
	var err error
	if b.Shape == "map" {
		m := map[string]any{"ts": ts, "events": b.Events}
		if b.Rank != nil {
			m["data_parallel_rank"] = *b.Rank
		}
		err = write(m)
	} else {
		a := []any{ts, b.Events}
		if b.Rank != nil {
			a = append(a, *b.Rank)
		}
		err = write(a)
	}
	return buf.Bytes(), err
}

// encode writes a value of JSON, with numbers as integers wherever they are, and keys in order.
func encode(enc *msgpack.Encoder, v any) error {
	switch v := v.(type) {
	case []any:
		if err := enc.EncodeArrayLen(len(v)); err != nil {
			return err
		}
		for _, e := range v {
			if err := encode(enc, e); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		if text, ok := v["$hex"].(string); ok && len(v) == 1 {
			raw, err := hex.DecodeString(text)
			if err != nil {
				return fmt.Errorf("$hex: %w", err)
			}
			return enc.EncodeBytes(raw)
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		if err := enc.EncodeMapLen(len(keys)); err != nil {
			return err
		}
		for _, k := range keys {
			if err := enc.EncodeString(k); err != nil {
				return err
			}
			if err := encode(enc, v[k]); err != nil {
				return err
			}
		}
		return nil
	case json.Number:
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return enc.EncodeUint(n)
		}
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return enc.EncodeInt(n)
		}
		f, err := v.Float64()
		if err != nil {
			return fmt.Errorf("number %s: %w", v, err)
		}
		return enc.EncodeFloat64(f)
	default:
		return enc.Encode(v)
	}
}
