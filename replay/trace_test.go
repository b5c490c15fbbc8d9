package replay

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(text string) ([]Request, error) {
	return NewReader(strings.NewReader(text), "t.jsonl", 512).ReadAll(0)
}

func TestReaderReadsMooncakesFormAndSkipsBlankLines(t *testing.T) {
	got, err := read(`
{"timestamp": 0, "input_length": 513, "output_length": 7, "hash_ids": [0, 1]}

{"hash_ids":[0],"output_length":0,"timestamp":5,"input_length":512}` + "\r\n")
	require.NoError(t, err)
	require.Equal(t, []Request{
		{TimestampMS: 0, InputTokens: 513, OutputTokens: 7, Blocks: []uint64{0, 1}},
		{TimestampMS: 5, InputTokens: 512, OutputTokens: 0, Blocks: []uint64{0}},
	}, got)
}

func TestReaderStopsAtTheLimit(t *testing.T) {
	text := `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[0]}` + "\n" + "garbage that is never reached"
	got, err := NewReader(strings.NewReader(text), "t.jsonl", 512).ReadAll(1)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestReaderNamesFileLineAndField(t *testing.T) {
	const good = `{"timestamp":3,"input_length":600,"output_length":1,"hash_ids":[0,1]}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"", "t.jsonl: no request in it; a trace has one JSON object a line"},
		{"[]", "t.jsonl:1: [ where a JSON object should stand"},
		{"7", "t.jsonl:1: 7 where a JSON object should stand"},
		{`{"timestamp":1`, "t.jsonl:1: the JSON object is cut short"},
		{`{"timestamp":`, "t.jsonl:1: timestamp: the JSON object is cut short"},
		{good + `{"timestamp":"a"}`, `t.jsonl:2: timestamp: "a" is not a whole number`},
		{`{"timestamp":1.5}`, "t.jsonl:1: timestamp: 1.5 is not a whole number from 0 to 2147483647"},
		{`{"timestamp":-1}`, "t.jsonl:1: timestamp: -1 is not a whole number from 0 to 2147483647"},
		{`{"timestamp":1,"timestamp":1}`, "t.jsonl:1: timestamp: given twice"},
		{`{"Timestamp":1}`, "t.jsonl:1: Timestamp: unknown field; a line has timestamp, input_length, output_length, hash_ids"},
		{`{"timestamp":1,"input_length":1,"hash_ids":[1]}`, "t.jsonl:1: output_length: missing"},
		{`{"timestamp":1,"input_length":0,"output_length":1,"hash_ids":[]}`, "t.jsonl:1: input_length: is 0; a prompt has at least one token"},
		{`{"timestamp":1,"input_length":2147483648}`, "t.jsonl:1: input_length: 2147483648 is not a whole number from 0 to 2147483647"},
		{`{"hash_ids":null}`, "t.jsonl:1: hash_ids: null where a list of block ids should stand"},
		{`{"hash_ids":[1,"x"]}`, `t.jsonl:1: hash_ids: [1]: "x" is not a block id`},
		{`{"hash_ids":[-4]}`, "t.jsonl:1: hash_ids: [0]: -4 is not a whole number from 0 to 2^64-1"},
		{`{"timestamp":1,"input_length":1,"output_length":1,"hash_ids":[1]}{}`, "t.jsonl:1: more text after the object; a trace has one object a line"},
		{
			`{"timestamp":1,"input_length":513,"output_length":1,"hash_ids":[1]}`,
			"t.jsonl:1: hash_ids: 1 blocks of 512 tokens for a prompt of 513 tokens, expected 2; is the block size right?",
		},
		{
			good + "\n" + `{"timestamp":2,"input_length":1,"output_length":1,"hash_ids":[0]}`,
			"t.jsonl:3: timestamp: 2 lies before the 3 of line 1; sort the trace by time",
		},
		{
			good + `{"timestamp":3,"input_length":1,"output_length":1,"hash_ids":[1]}`,
			"t.jsonl:2: hash_ids: block 1 comes first, but on line 1 it follows block 0; an id stands for one whole prefix",
		},
		{
			`{"timestamp":3,"input_length":600,"output_length":1,"hash_ids":[5,5]}`,
			"t.jsonl:1: hash_ids: block 5 follows block 5, but on line 1 it comes first; an id stands for one whole prefix",
		},
	} {
		_, err := read(c.text)
		require.EqualError(t, err, c.want, c.text)
	}
}

func TestReaderRefusesAnEndlessLine(t *testing.T) {
	_, err := read(strings.Repeat(" ", maxLine+1) + "x")
	require.EqualError(t, err, "t.jsonl:1: longer than 16 MiB")
}

func TestReaderPassesReadErrorsOn(t *testing.T) {
	broken := errors.New("disk on fire")
	_, err := NewReader(io.MultiReader(strings.NewReader("\n\n"), errReader{broken}), "t.jsonl", 512).ReadAll(0)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "t.jsonl:3")
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// What the reader accepts, the rest of the package must bear.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"timestamp":0,"input_length":513,"output_length":7,"hash_ids":[0,1]}`))
	f.Add([]byte("\n{\"timestamp\":1e3,\"hash_ids\":[18446744073709551615]}"))
	f.Add([]byte(`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[[]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewReader(bytes.NewReader(text), "f", 512)
		cache := NewCache(8)
		for {
			req, err := r.Next()
			if err != nil {
				var where *TraceError
				require.True(t, errors.Is(err, io.EOF) || errors.As(err, &where))
				return
			}
			c := chainOf(&req, 512, 0)
			require.Equal(t, req.InputTokens, c.tokens(len(c.counts)))
			cache.Serve(req.Blocks)
			require.LessOrEqual(t, cache.Len(), 8)
		}
	})
}
