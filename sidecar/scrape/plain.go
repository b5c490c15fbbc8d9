package scrape

import (
	"bufio"
	"bytes"
	"io"
	"strings"
)

// plain turns OpenMetrics into the older text format, as far as series of gauges and
// counters go: comments are dropped, since their types are named differently, and with them
// the end marker; exemplars and timestamps, in seconds there, are cut off.
func plain(r io.Reader) io.Reader {
	var out bytes.Buffer
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		labels := strings.LastIndexByte(exemplarless(line), '}') + 1
		fields := strings.Fields(line[labels:])
		if labels == 0 {
			if len(fields) < 2 {
				continue
			}
			out.WriteString(fields[0] + " " + fields[1] + "\n")
		} else if len(fields) >= 1 {
			out.WriteString(line[:labels] + " " + fields[0] + "\n")
		}
	}
	if err := lines.Err(); err != nil {
		return io.MultiReader(&out, failing{err})
	}
	return &out
}

func exemplarless(line string) string {
	if i := strings.Index(line, " # {"); i >= 0 {
		return line[:i]
	}
	return line
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
