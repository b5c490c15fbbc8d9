package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// narrowest is the fewest columns that tables are fitted into.
const narrowest = 40

// widthOf is the width of the terminal that w is, 0 if it is none.
func widthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 0
	}
	return max(width, narrowest)
}

// table has a header and rows; numbers and names alike are aligned to the left.
type table struct {
	header []string
	rows   [][]string
	// flexible is the column that is shortened when the table is too wide.
	flexible int
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table; width 0 = as wide as it gets.
func (t *table) write(w io.Writer, width int) {
	t.fit(width)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		fmt.Fprintln(out, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = out.Flush() // fails only if w does, and then there is nobody to tell
}

// fit shortens the flexible column by what the table is too wide.
func (t *table) fit(width int) {
	if width == 0 {
		return
	}
	total, flexible := 0, 0
	for col := range t.header {
		widest := utf8.RuneCountInString(t.header[col])
		for _, row := range t.rows {
			widest = max(widest, utf8.RuneCountInString(row[col]))
		}
		if col == t.flexible {
			flexible = widest
		}
		total += widest + 2
	}
	if total-2 <= width {
		return
	}
	room := max(flexible-(total-2-width), 8)
	for _, row := range t.rows {
		row[t.flexible] = middle(row[t.flexible], room)
	}
}

// middle cuts the middle out of a name: its end tells replicas apart.
func middle(s string, room int) string {
	runes := []rune(s)
	if len(runes) <= room {
		return s
	}
	tail := room / 2
	return string(runes[:room-tail-1]) + "…" + string(runes[len(runes)-tail:])
}

// wrap breaks a sentence at spaces; width 0 = not at all.
func wrap(text string, width int) string {
	if width == 0 {
		return text
	}
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// printable makes a name from the wire fit for a terminal and for a table's cell.
func printable(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' {
			clean = false
			break
		}
	}
	if clean && !strings.Contains(s, "\t") {
		return s
	}
	return strconv.QuoteToGraphic(s)
}

// cell is printable on one line, and shows an empty name.
func cell(s string) string {
	switch {
	case s == "":
		return "-"
	case strings.Contains(s, "\n"):
		return strconv.QuoteToGraphic(s)
	default:
		return printable(s)
	}
}

// writeJSON prints a value as indented JSON.
func writeJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// grouped writes 12345 as 12,345.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(digits) - 3; i > start; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plural is the count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "sh") || strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return grouped(int64(n)) + " " + noun + "s"
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }
