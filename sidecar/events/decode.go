package events

import (
	"errors"
	"math"
)

// ErrMalformed is wrapped by every error of Decode: the payload is not msgpack,
// or not of the form that engines use. Nothing of such a batch may be applied.
var ErrMalformed = errors.New("malformed event batch")

// ErrTooLarge is wrapped when a payload exceeds MaxPayload.
var ErrTooLarge = errors.New("event batch too large")

const (
	// MaxPayload bounds one batch, in bytes: a 1 M token prompt stored at once takes about 6 MiB.
	MaxPayload = 32 << 20
	// MaxRank bounds data_parallel_rank.
	MaxRank = 4095

	maxBlockSize = 1 << 20
	maxGroup     = 1 << 16
	maxHashBytes = 128
	maxNames     = 4096
)

// Decoder turns payloads into batches and reuses its memory from one to the
// next. The zero value is ready; it is not safe for concurrent use.
type Decoder struct {
	cursor
	batch  Batch
	hashes []Hash
	tokens []uint32
	extra  []ExtraKey
	names  map[string]string
}

// Decode reads one payload. The batch it returns is lent until the next call.
// The error wraps ErrMalformed or ErrTooLarge and says what is wrong and where.
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	if len(payload) > MaxPayload {
		return nil, fmtTooLarge(len(payload))
	}
	d.cursor = cursor{buf: payload}
	clear(d.batch.Events)
	d.batch = Batch{Rank: NoRank, Events: d.batch.Events[:0]}
	d.hashes, d.tokens, d.extra = d.hashes[:0], d.tokens[:0], d.extra[:0]
	err := d.readBatch()
	d.buf = nil
	if err != nil {
		return nil, err
	}
	return &d.batch, nil
}

func (d *Decoder) readBatch() error {
	b, err := d.peek()
	if err != nil {
		return err
	}
	if isMap(b) {
		err = d.batchOfMap()
	} else {
		err = d.batchOfArray()
	}
	if err == nil && d.left() > 0 {
		err = d.fail("%d bytes follow the batch", d.left())
	}
	return err
}

func (d *Decoder) batchOfArray() error {
	n, err := d.array()
	if err != nil {
		return err
	}
	if n < 2 {
		return d.fail("a batch of %d fields: ts and events wanted", n)
	}
	for i := 0; i < n && err == nil; i++ {
		switch i {
		case 0:
			err = d.readTS()
		case 1:
			err = d.readEvents()
		case 2:
			err = d.readRank()
		default:
			err = d.unknownField()
		}
	}
	return err
}

func (d *Decoder) batchOfMap() error {
	n, err := d.dict()
	if err != nil {
		return err
	}
	events := false
	for ; n > 0; n-- {
		key, err := d.text()
		if err != nil {
			return err
		}
		switch string(key) {
		case "ts":
			err = d.readTS()
		case "events":
			if events {
				return d.fail("a batch with events twice")
			}
			events = true
			err = d.readEvents()
		case "data_parallel_rank":
			err = d.readRank()
		case "type": // the tag of the batch's own class
			err = d.skip(0)
		default:
			err = d.unknownField()
		}
		if err != nil {
			return err
		}
	}
	if !events {
		return d.fail("a batch without events")
	}
	return nil
}

func (d *Decoder) unknownField() error {
	d.batch.UnknownFields++
	return d.skip(0)
}

func (d *Decoder) readTS() error {
	if d.null() {
		return nil
	}
	ts, err := d.float()
	if !math.IsNaN(ts) && !math.IsInf(ts, 0) {
		d.batch.TS = ts
	}
	return err
}

func (d *Decoder) readRank() error {
	if d.null() {
		return nil
	}
	v, err := d.count("data_parallel_rank", MaxRank)
	d.batch.Rank = int(v)
	return err
}

func (d *Decoder) readEvents() error {
	n, err := d.array()
	for ; err == nil && n > 0; n-- {
		err = d.readEvent()
	}
	return err
}
