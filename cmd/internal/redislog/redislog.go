// Package redislog takes the lines that Redis' client writes by itself, of every dial
// that fails, into the log of the process. What they are about the callers of the
// client log themselves, with more sense, so they are for those who debug.
package redislog

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

var log atomic.Pointer[slog.Logger]

// Install is for main, before there is a client: it changes the client library, which
// takes no lock for that. Until Use the lines are dropped.
func Install() { redis.SetLogger(lines{}) }

// Use sends the lines to l from now on, at debug level.
func Use(l *slog.Logger) { log.Store(l) }

type lines struct{}

func (lines) Printf(ctx context.Context, format string, args ...any) {
	if l := log.Load(); l != nil {
		l.DebugContext(ctx, "Redis client: "+fmt.Sprintf(format, args...))
	}
}
