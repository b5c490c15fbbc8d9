package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// parseLine decodes one object token by token: encoding/json proper would take
// fields of any case and repeated ones, and could not name the field at fault.
func parseLine(text []byte) (req Request, field string, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := wantDelim(dec, '{', "a JSON object"); err != nil {
		return req, "", err
	}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return req, "", jsonError(err)
		}
		name, _ := tok.(string)
		if seen[name] {
			return req, name, errors.New("given twice")
		}
		seen[name] = true
		switch name {
		case fieldTimestamp:
			req.TimestampMS, err = readCount(dec)
		case fieldInputLength:
			req.InputTokens, err = readCount(dec)
		case fieldOutputLength:
			req.OutputTokens, err = readCount(dec)
		case fieldHashIDs:
			req.Blocks, err = readBlocks(dec)
		default:
			err = fmt.Errorf("unknown field; a line has %s", strings.Join(allFields(), ", "))
		}
		if err != nil {
			return req, name, err
		}
	}
	if err := wantDelim(dec, '}', "the object's end"); err != nil {
		return req, "", err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, "", errors.New("more text after the object; a trace has one object a line")
	}
	for _, name := range allFields() {
		if !seen[name] {
			return req, name, errors.New("missing")
		}
	}
	return req, "", nil
}

func allFields() []string {
	return []string{fieldTimestamp, fieldInputLength, fieldOutputLength, fieldHashIDs}
}

// readCount reads a whole number from 0 up to what an int32 token count can say.
func readCount(dec *json.Decoder) (int64, error) {
	tok, err := dec.Token()
	if err != nil {
		return 0, jsonError(err)
	}
	num, ok := tok.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%s is not a whole number", describe(tok))
	}
	n, err := strconv.ParseInt(num.String(), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%s is not a whole number from 0 to %d", shorten(num.String()), math.MaxInt32)
	}
	return n, nil
}

func readBlocks(dec *json.Decoder) ([]uint64, error) {
	if err := wantDelim(dec, '[', "a list of block ids"); err != nil {
		return nil, err
	}
	var blocks []uint64
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, jsonError(err)
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("[%d]: %s is not a block id", len(blocks), describe(tok))
		}
		id, err := strconv.ParseUint(num.String(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %s is not a whole number from 0 to 2^64-1", len(blocks), shorten(num.String()))
		}
		blocks = append(blocks, id)
	}
	return blocks, wantDelim(dec, ']', "the list's end")
}

func wantDelim(dec *json.Decoder, want json.Delim, name string) error {
	tok, err := dec.Token()
	if err != nil {
		return jsonError(err)
	}
	if tok != want {
		return fmt.Errorf("%s where %s should stand", describe(tok), name)
	}
	return nil
}

func describe(tok json.Token) string {
	switch v := tok.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(shorten(v))
	case json.Number:
		return shorten(v.String())
	default:
		return fmt.Sprint(v)
	}
}

// shorten keeps an error on one line of a terminal.
func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

func jsonError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON object is cut short")
	}
	return err
}
