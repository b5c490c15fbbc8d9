package chaincache

import (
	"testing"

	"inferencecache.io/lookuptier/integration/cputime"
)

// cpuTime reports what an operation costs this process, whatever else the machine
// is busy with. Call it right before the loop and what it returns right after.
func cpuTime(b *testing.B) func() {
	before := cputime.Used(b)
	return func() { b.ReportMetric(float64(cputime.Used(b)-before)/float64(b.N), "cpu-ns/op") }
}
