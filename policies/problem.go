package policies

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a policy file.
type Problem struct {
	// File is the name that the source was given under.
	File string
	// Line counts from 1; 0 when the problem is the file as a whole.
	Line int
	// Field is the path of the field, such as "spec.evictionTTL"; empty when the
	// problem is the document as a whole.
	Field string
	// Text says what is wrong and what to write instead.
	Text string
}

// String is the problem in one line, in the form that editors jump to.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field)
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is the error of a set that could not be read: all that is wrong, by
// file and line. It is never empty as an error.
type Problems []Problem //nolint:errname // a list first, as its readers use it

// Error has one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted puts the problems in the order of the files, as a reader mends them.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return ps
}
