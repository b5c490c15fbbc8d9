package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxLine bounds one line of a trace: 65,536 block ids of 20 digits fit many times.
const maxLine = 16 << 20

// maxChain is the longest chain that a lookup may carry.
const maxChain = 65536

// The fields of a trace line, in the order in which Mooncake writes them.
const (
	fieldTimestamp    = "timestamp"
	fieldInputLength  = "input_length"
	fieldOutputLength = "output_length"
	fieldHashIDs      = "hash_ids"
)

// Request is one line of a trace.
type Request struct {
	// TimestampMS is the arrival, milliseconds since the trace began.
	TimestampMS int64
	// InputTokens is the length of the prompt; at least 1.
	InputTokens int64
	// OutputTokens is the length of the answer.
	OutputTokens int64
	// Blocks names the prompt's blocks, first block first. Equal ids stand for
	// equal prefixes up to and including that block. The last one may be partial.
	Blocks []uint64
}

// TraceError says what is wrong with a trace and where.
type TraceError struct {
	File string
	Line int
	// Field is the JSON field at fault; empty when the line is none at all.
	Field string
	Err   error
}

func (e *TraceError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d: %s: %v", e.File, e.Line, e.Field, e.Err)
}

func (e *TraceError) Unwrap() error { return e.Err }

// Reader reads requests, one JSON object a line, in Mooncake's form. It is strict:
// a trace that it accepts can be replayed to its end. Blank lines are skipped.
type Reader struct {
	file        string
	blockTokens int64
	lines       *bufio.Scanner
	line        int
	lastMS      int64
	lastLine    int
	// parents remembers which block each block followed, and where it was first seen.
	parents map[uint64]parentage
}

type parentage struct {
	parent uint64
	line   int
	root   bool
}

// NewReader reads from r; file is its name in errors. blockTokens is how many
// tokens a block id stands for (512 in Mooncake's traces); at least 1.
func NewReader(r io.Reader, file string, blockTokens int64) *Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{file: file, blockTokens: blockTokens, lines: lines, parents: map[uint64]parentage{}}
}

// ReadAll reads at most limit requests; 0 = all of them. A trace without any
// request is an error.
func (r *Reader) ReadAll(limit int) ([]Request, error) {
	var requests []Request
	for limit == 0 || len(requests) < limit {
		req, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		requests = append(requests, req)
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("%s: no request in it; a trace has one JSON object a line", r.file)
	}
	return requests, nil
}

// Next returns the next request, io.EOF after the last one, or a *TraceError.
func (r *Reader) Next() (Request, error) {
	for r.lines.Scan() {
		r.line++
		text := bytes.TrimSpace(r.lines.Bytes())
		if len(text) == 0 {
			continue
		}
		req, field, err := parseLine(text)
		if err == nil {
			field, err = r.check(&req)
		}
		if err != nil {
			return Request{}, &TraceError{File: r.file, Line: r.line, Field: field, Err: err}
		}
		r.lastMS, r.lastLine = req.TimestampMS, r.line
		return req, nil
	}
	if err := r.lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d MiB", maxLine>>20)
		}
		return Request{}, &TraceError{File: r.file, Line: r.line + 1, Err: err}
	}
	return Request{}, io.EOF
}

// check tests what a single line cannot know by its syntax.
func (r *Reader) check(req *Request) (field string, err error) {
	if req.TimestampMS < r.lastMS {
		return fieldTimestamp, fmt.Errorf("%d lies before the %d of line %d; sort the trace by time",
			req.TimestampMS, r.lastMS, r.lastLine)
	}
	if req.InputTokens < 1 {
		return fieldInputLength, errors.New("is 0; a prompt has at least one token")
	}
	n := int64(len(req.Blocks))
	if n > maxChain {
		return fieldHashIDs, fmt.Errorf("%d blocks; a chain has at most %d", n, maxChain)
	}
	if want := (req.InputTokens-1)/r.blockTokens + 1; n != want {
		return fieldHashIDs, fmt.Errorf("%d blocks of %d tokens for a prompt of %d tokens, expected %d; is the block size right?",
			n, r.blockTokens, req.InputTokens, want)
	}
	return fieldHashIDs, r.checkParents(req.Blocks)
}

// checkParents holds the trace to the meaning of its ids: each stands for a whole
// prefix, so it follows the same block wherever it appears.
func (r *Reader) checkParents(blocks []uint64) error {
	for i, id := range blocks {
		here := parentage{line: r.line, root: i == 0}
		if i > 0 {
			here.parent = blocks[i-1]
		}
		first, seen := r.parents[id]
		if !seen {
			r.parents[id] = here
			continue
		}
		if first.root != here.root || first.parent != here.parent {
			return fmt.Errorf("block %d %s, but on line %d it %s; an id stands for one whole prefix",
				id, here, first.line, first)
		}
	}
	return nil
}

func (p parentage) String() string {
	if p.root {
		return "comes first"
	}
	return "follows block " + strconv.FormatUint(p.parent, 10)
}
