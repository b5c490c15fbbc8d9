// Package cputime measures by the processor time of this process, which a busy
// machine distorts less than the clock. For benchmarks.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Used is the processor time of this process so far, in user and system mode.
func Used(tb testing.TB) time.Duration {
	tb.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatalf("processor time: %v", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// OfCall is what one call costs, in ns, over calls that take at least so long together.
func OfCall(tb testing.TB, long time.Duration, call func()) float64 {
	tb.Helper()
	for n := 1; ; n *= 2 {
		before := Used(tb)
		for range n {
			call()
		}
		if took := Used(tb) - before; took >= long {
			return float64(took) / float64(n)
		}
	}
}
