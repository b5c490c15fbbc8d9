package main

import (
	"log/slog"
	"runtime/debug"
)

// warnOfMemory says so if the cache leaves the rest of the pod too little of GOMEMLIMIT:
// the collector would then run all the time and save nothing.
func warnOfMemory(c *config, log *slog.Logger) {
	limit := debug.SetMemoryLimit(-1) // reads it; the largest int64 = none
	if c.Cache != "on" || int64(c.CacheBytes) <= limit/5*4 {
		return
	}
	log.Warn("GOMEMLIMIT leaves no room beside --cache-bytes: lower --cache-bytes to four fifths of it or less",
		"gomemlimit", size(limit).String(), "cache_bytes", c.CacheBytes.String())
}
