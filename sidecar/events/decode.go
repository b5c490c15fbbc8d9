package events

import (
	"errors"
	"math"

	"github.com/zeebo/xxh3"
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

// readEvent appends one event, unless its tag is unknown.
func (d *Decoder) readEvent() error {
	b, err := d.peek()
	if err != nil {
		return err
	}
	if isMap(b) {
		return d.eventOfMap()
	}
	n, err := d.array()
	if err != nil {
		return err
	}
	if n == 0 {
		return d.fail("an event without a tag")
	}
	tag, err := d.text()
	if err != nil {
		return err
	}
	e, fields, required := d.begin(tag)
	if n-1 < required {
		return d.fail("%s with %d fields: at least %d wanted", tag, n-1, required)
	}
	for i := range n - 1 {
		if i < len(fields) {
			err = d.readField(e, fields[i])
		} else if e.Kind == 0 {
			err = d.skip(0)
		} else {
			err = d.unknownField()
		}
		if err != nil {
			return err
		}
	}
	return d.finish(e)
}

// eventOfMap reads the tag first, wherever it stands.
func (d *Decoder) eventOfMap() error {
	start := d.pos
	n, err := d.dict()
	if err != nil {
		return err
	}
	var tag []byte
	for range n {
		key, err := d.text()
		if err != nil {
			return err
		}
		if string(key) == "type" {
			tag, err = d.text()
		} else {
			err = d.skip(0)
		}
		if err != nil {
			return err
		}
	}
	if tag == nil {
		return d.fail("an event without a type")
	}
	e, fields, required := d.begin(tag)
	if e.Kind == 0 {
		return d.finish(e)
	}
	d.pos = start
	if _, err = d.dict(); err != nil {
		return err
	}
	seen := 0
	for range n {
		key, err := d.text()
		if err != nil {
			return err
		}
		f := fieldNamed(fields, key)
		switch {
		case f >= 0:
			if seen&(1<<f) != 0 {
				return d.fail("%s with %s twice", tag, key)
			}
			seen |= 1 << f
			err = d.readField(e, fields[f])
		case string(key) == "type":
			err = d.skip(0)
		default:
			err = d.unknownField()
		}
		if err != nil {
			return err
		}
	}
	for i := range required {
		if seen&(1<<i) == 0 && fields[i].needed() {
			return d.fail("%s without %s", tag, fields[i])
		}
	}
	return d.finish(e)
}

// begin appends an empty event for tag and returns it with its fields in array
// order, and how many of these an array must have at least.
func (d *Decoder) begin(tag []byte) (e *Event, fields []field, required int) {
	d.batch.Events = append(d.batch.Events, Event{Group: NoGroup})
	e = &d.batch.Events[len(d.batch.Events)-1]
	switch string(tag) {
	case "BlockStored":
		e.Kind = Stored
		return e, storedFields, 4
	case "BlockRemoved":
		e.Kind = Removed
		return e, removedFields, 1
	case "AllBlocksCleared":
		e.Kind = Cleared
	}
	return e, nil, 0
}

// finish takes an event of unknown kind back.
func (d *Decoder) finish(e *Event) error {
	if e.Kind == 0 {
		d.batch.UnknownEvents++
		d.batch.Events = d.batch.Events[:len(d.batch.Events)-1]
	}
	return nil
}

func (d *Decoder) readHashes(e *Event) error {
	n, err := d.array()
	if err != nil {
		return err
	}
	from := len(d.hashes)
	for range n {
		h, err := d.readHash()
		if err != nil {
			return err
		}
		d.hashes = append(d.hashes, h)
	}
	e.Hashes = d.hashes[from:len(d.hashes):len(d.hashes)]
	return nil
}

// readHash folds a hash. A signed integer is the same hash as the unsigned one of
// the same bits. Bytes go through XXH3-128; the top bit keeps them apart from integers.
func (d *Decoder) readHash() (Hash, error) {
	b, err := d.peek()
	if err != nil {
		return Hash{}, err
	}
	if isBin(b) || isText(b) {
		raw, err := d.text()
		if err != nil {
			return Hash{}, err
		}
		if len(raw) == 0 || len(raw) > maxHashBytes {
			return Hash{}, d.fail("a hash of %d bytes", len(raw))
		}
		h := xxh3.Hash128(raw)
		return Hash{Hi: h.Hi | 1<<63, Lo: h.Lo}, nil
	}
	v, _, err := d.integer()
	return Hash{Lo: v}, err
}

func (d *Decoder) readTokens(e *Event) error {
	if d.null() {
		return nil
	}
	n, err := d.array()
	if err != nil {
		return err
	}
	from := len(d.tokens)
	for range n {
		v, negative, err := d.integer()
		if err != nil {
			return err
		}
		if negative || v > math.MaxUint32 {
			return d.fail("a token id out of range")
		}
		d.tokens = append(d.tokens, uint32(v))
	}
	e.Tokens = d.tokens[from:len(d.tokens):len(d.tokens)]
	return nil
}

// readExtra reads extra_keys: nil, or for each block nil or a list of keys.
func (d *Decoder) readExtra(e *Event) error {
	if d.null() {
		return nil
	}
	n, err := d.array()
	if err != nil {
		return err
	}
	from := len(d.extra)
	for i := range n {
		if d.null() {
			continue
		}
		keys, err := d.array()
		if err != nil {
			return err
		}
		for range keys {
			k := ExtraKey{Block: i}
			b, err := d.peek()
			if err != nil {
				return err
			}
			if isText(b) {
				k.Name, err = d.readName()
			} else {
				err = d.skip(0)
			}
			if err != nil {
				return err
			}
			d.extra = append(d.extra, k)
		}
	}
	e.ExtraBlocks = n
	e.Extra = d.extra[from:len(d.extra):len(d.extra)]
	return nil
}

// readName reads a string; nil is "". Names repeat, so they are kept and shared.
func (d *Decoder) readName() (string, error) {
	if d.null() {
		return "", nil
	}
	raw, err := d.text()
	if err != nil {
		return "", err
	}
	if s, ok := d.names[string(raw)]; ok {
		return s, nil
	}
	s := string(raw)
	if d.names == nil || len(d.names) >= maxNames {
		d.names = make(map[string]string)
	}
	if len(s) <= 512 {
		d.names[s] = s
	}
	return s, nil
}
