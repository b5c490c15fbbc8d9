// Package processlog makes the log of a command that runs for long.
package processlog

import (
	"io"
	"log/slog"
)

// New writes lines of a format, "text" or "json", from a level of slog's own names up.
// The flags were checked: what is neither is json, and info.
func New(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		least = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: least}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}
