package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Spelling is a name without what people mistype: case, white space, and which of - and
// _ is meant. Different names of one spelling are one name written twice.
func Spelling(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return -1
		case r == '_':
			return '-'
		default:
			return unicode.ToLower(r)
		}
	}, name)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// bytesText writes bytes in the unit that suits them.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, suffix := float64(n), ""
	for _, suffix = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if v /= unit; v < unit {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, suffix)
}

// ageText is a span of time for people.
func ageText(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + ageText(-d)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

func ageMS(ms int64) string { return ageText(time.Duration(ms) * time.Millisecond) }

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
