package chaincache

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime reports what an operation costs this process, whatever else the machine
// is busy with. Call it right before the loop and what it returns right after.
func cpuTime(b *testing.B) func() {
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			return 0
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}
