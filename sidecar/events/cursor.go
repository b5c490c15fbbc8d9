package events

import (
	"encoding/binary"
	"fmt"
	"math"
)

// maxDepth bounds how deep values that are only skipped may nest.
const maxDepth = 16

// cursor reads msgpack from a slice. Every length that the payload claims is
// checked against the bytes that are left before anything is allocated for it:
// an element takes at least a byte.
type cursor struct {
	buf []byte
	pos int
}

func (c *cursor) left() int { return len(c.buf) - c.pos }

func (c *cursor) fail(format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrMalformed, c.pos, fmt.Sprintf(format, args...))
}

// take returns the next n bytes.
func (c *cursor) take(n int) ([]byte, error) {
	if n < 0 || n > c.left() {
		return nil, c.fail("%d bytes wanted, %d left", n, c.left())
	}
	b := c.buf[c.pos : c.pos+n]
	c.pos += n
	return b, nil
}

func (c *cursor) peek() (byte, error) {
	if c.pos >= len(c.buf) {
		return 0, c.fail("the payload ends early")
	}
	return c.buf[c.pos], nil
}

// number reads an n-byte big-endian unsigned integer.
func (c *cursor) number(n int) (uint64, error) {
	b, err := c.take(n)
	if err != nil {
		return 0, err
	}
	switch n {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	default:
		return binary.BigEndian.Uint64(b), nil
	}
}

// null consumes a nil if one is next.
func (c *cursor) null() bool {
	if c.pos < len(c.buf) && c.buf[c.pos] == 0xc0 {
		c.pos++
		return true
	}
	return false
}

// size reads n bytes of length and checks that it can be true, each element
// taking at least each bytes.
func (c *cursor) size(n, each int) (int, error) {
	v, err := c.number(n)
	if err != nil {
		return 0, err
	}
	return c.fits(v, each)
}

func (c *cursor) fits(v uint64, each int) (int, error) {
	if v > uint64(c.left()/each) {
		return 0, c.fail("%d elements claimed, %d bytes left", v, c.left())
	}
	return int(v), nil
}

func (c *cursor) array() (int, error) {
	b, err := c.peek()
	if err != nil {
		return 0, err
	}
	c.pos++
	switch {
	case b&0xf0 == 0x90:
		return c.fits(uint64(b&0x0f), 1)
	case b == 0xdc:
		return c.size(2, 1)
	case b == 0xdd:
		return c.size(4, 1)
	}
	c.pos--
	return 0, c.fail("an array wanted, found %s", typeName(b))
}

func isMap(b byte) bool { return b&0xf0 == 0x80 || b == 0xde || b == 0xdf }

func (c *cursor) dict() (int, error) {
	b, err := c.peek()
	if err != nil {
		return 0, err
	}
	c.pos++
	switch {
	case b&0xf0 == 0x80:
		return c.fits(uint64(b&0x0f), 2)
	case b == 0xde:
		return c.size(2, 2)
	case b == 0xdf:
		return c.size(4, 2)
	}
	c.pos--
	return 0, c.fail("a map wanted, found %s", typeName(b))
}

func isText(b byte) bool { return b&0xe0 == 0xa0 || b >= 0xd9 && b <= 0xdb }

func isBin(b byte) bool { return b >= 0xc4 && b <= 0xc6 }

// text reads a string; a binary value counts as one, since old encoders knew no other.
func (c *cursor) text() ([]byte, error) {
	b, err := c.peek()
	if err != nil {
		return nil, err
	}
	if b&0xe0 == 0xa0 {
		c.pos++
		return c.take(int(b & 0x1f))
	}
	var n int
	switch b {
	case 0xd9, 0xc4:
		c.pos++
		n, err = c.size(1, 1)
	case 0xda, 0xc5:
		c.pos++
		n, err = c.size(2, 1)
	case 0xdb, 0xc6:
		c.pos++
		n, err = c.size(4, 1)
	default:
		return nil, c.fail("a string wanted, found %s", typeName(b))
	}
	if err != nil {
		return nil, err
	}
	return c.take(n)
}

// integer reads any integer as 64 bits of two's complement; negative says whether it was below 0.
func (c *cursor) integer() (v uint64, negative bool, err error) {
	b, err := c.peek()
	if err != nil {
		return 0, false, err
	}
	c.pos++
	switch {
	case b <= 0x7f:
		return uint64(b), false, nil
	case b >= 0xe0:
		return uint64(int64(int8(b))), true, nil
	}
	switch b {
	case 0xcc:
		v, err = c.number(1)
	case 0xcd:
		v, err = c.number(2)
	case 0xce:
		v, err = c.number(4)
	case 0xcf:
		v, err = c.number(8)
	case 0xd0:
		v, err = c.number(1)
		v = uint64(int64(int8(v)))
		negative = int64(v) < 0
	case 0xd1:
		v, err = c.number(2)
		v = uint64(int64(int16(v)))
		negative = int64(v) < 0
	case 0xd2:
		v, err = c.number(4)
		v = uint64(int64(int32(v)))
		negative = int64(v) < 0
	case 0xd3:
		v, err = c.number(8)
		negative = int64(v) < 0
	default:
		c.pos--
		return 0, false, c.fail("an integer wanted, found %s", typeName(b))
	}
	return v, negative, err
}

// count reads an integer that must lie in [0, max].
func (c *cursor) count(what string, limit uint64) (uint64, error) {
	v, negative, err := c.integer()
	if err != nil {
		return 0, err
	}
	if negative || v > limit {
		return 0, c.fail("%s out of range", what)
	}
	return v, nil
}

// float reads a number of any kind.
func (c *cursor) float() (float64, error) {
	b, err := c.peek()
	if err != nil {
		return 0, err
	}
	switch b {
	case 0xca:
		c.pos++
		v, err := c.number(4)
		return float64(math.Float32frombits(uint32(v))), err
	case 0xcb:
		c.pos++
		v, err := c.number(8)
		return math.Float64frombits(v), err
	}
	v, negative, err := c.integer()
	if negative {
		return float64(int64(v)), err
	}
	return float64(v), err
}

// skip passes over one value of any type.
func (c *cursor) skip(depth int) error {
	if depth >= maxDepth {
		return c.fail("values nest deeper than %d", maxDepth)
	}
	b, err := c.peek()
	if err != nil {
		return err
	}
	switch {
	case b <= 0x7f || b >= 0xe0 || b == 0xc0 || b == 0xc2 || b == 0xc3:
		c.pos++
		return nil
	case isText(b) || isBin(b):
		_, err = c.text()
		return err
	case b&0xf0 == 0x90 || b == 0xdc || b == 0xdd:
		n, err := c.array()
		for ; err == nil && n > 0; n-- {
			err = c.skip(depth + 1)
		}
		return err
	case isMap(b):
		n, err := c.dict()
		for ; err == nil && n > 0; n-- {
			if err = c.skip(depth + 1); err == nil {
				err = c.skip(depth + 1)
			}
		}
		return err
	}
	c.pos++
	var fixed int
	switch b {
	case 0xcc, 0xd0:
		fixed = 1
	case 0xcd, 0xd1, 0xd4:
		fixed = 2
	case 0xd5:
		fixed = 3
	case 0xca, 0xce, 0xd2:
		fixed = 4
	case 0xd6:
		fixed = 5
	case 0xcb, 0xcf, 0xd3:
		fixed = 8
	case 0xd7:
		fixed = 9
	case 0xd8:
		fixed = 17
	case 0xc7, 0xc8, 0xc9: // extension types: length, one byte of type, data
		n, err := c.size(1<<(b-0xc7), 1)
		if err != nil {
			return err
		}
		fixed = n + 1
	default:
		c.pos--
		return c.fail("0x%02x begins no value", b)
	}
	_, err = c.take(fixed)
	return err
}

func typeName(b byte) string {
	switch {
	case b <= 0x7f || b >= 0xe0 || b >= 0xcc && b <= 0xd3:
		return "an integer"
	case isMap(b):
		return "a map"
	case b&0xf0 == 0x90 || b == 0xdc || b == 0xdd:
		return "an array"
	case isText(b):
		return "a string"
	case isBin(b):
		return "bytes"
	case b == 0xc0:
		return "nil"
	case b == 0xc2 || b == 0xc3:
		return "a boolean"
	case b == 0xca || b == 0xcb:
		return "a float"
	}
	return fmt.Sprintf("0x%02x", b)
}
