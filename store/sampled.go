package store

import (
	"sync"
	"time"
)

const (
	// sampleEvery and sampleFirst bound the log lines of one kind: what befalls a
	// partition may befall thousands of them at once.
	sampleEvery = 5 * time.Second
	sampleFirst = 5
)

// sampled writes the first lines of a kind, and then how many it left out. The zero
// value is ready.
type sampled struct {
	mu sync.Mutex
	n  int // lines since the first that was written
}

// line is written by write, a method of slog.Logger, or counted.
func (s *sampled) line(write func(msg string, args ...any), msg string, args ...any) {
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	if n == 1 {
		time.AfterFunc(sampleEvery, func() { s.rest(write, msg) })
	}
	if n <= sampleFirst {
		write(msg, args...)
	}
}

func (s *sampled) rest(write func(msg string, args ...any), msg string) {
	s.mu.Lock()
	n := s.n
	s.n = 0
	s.mu.Unlock()
	if n > sampleFirst {
		write(msg, "omitted", n-sampleFirst)
	}
}
