package events

import (
	"math"

	"github.com/zeebo/xxh3"
)

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
