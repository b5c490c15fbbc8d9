package replay

import (
	"container/heap"
	"sync"
	"time"
)

// finishTimes is a heap of the times, in ms of the trace, at which requests end.
type finishTimes []int64

func (f finishTimes) Len() int           { return len(f) }
func (f finishTimes) Less(i, j int) bool { return f[i] < f[j] }
func (f finishTimes) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *finishTimes) Push(x any)        { *f = append(*f, x.(int64)) }
func (f *finishTimes) Pop() any {
	old := *f
	last := old[len(old)-1]
	*f = old[:len(old)-1]
	return last
}

// start notes a request that arrives at nowMS and produces so many tokens.
func (f *finishTimes) start(nowMS, outputTokens int64, tokenTime time.Duration) {
	heap.Push(f, nowMS+outputTokens*tokenTime.Microseconds()/1000)
}

// runningAt is how many requests have not ended at nowMS. It forgets those that have,
// so nowMS must not go back.
func (f *finishTimes) runningAt(nowMS int64) int {
	for f.Len() > 0 && (*f)[0] <= nowMS {
		heap.Pop(f)
	}
	return f.Len()
}

// pressure is the share of an engine's slots in use.
func pressure(running, slots int) float32 {
	return min(float32(running)/float32(slots), 1)
}

// everySecond tells when the trace's clock has entered a new second.
type everySecond struct {
	mu   sync.Mutex
	last int64
}

func (s *everySecond) passed(nowMS int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	second := nowMS / 1000
	if second <= s.last {
		return false
	}
	s.last = second
	return true
}
