package lookupsvc

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// sampler logs the first few lines of a kind and then one a second, with the
// number that it left out. A kind is its message, so messages are constants:
// what varies goes into the attributes.
type sampler struct {
	log   *slog.Logger
	every time.Duration
	burst int

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	limit   *rate.Limiter
	omitted int
}

func newSampler(log *slog.Logger) *sampler {
	return &sampler{log: log, every: time.Second, burst: 5, kinds: make(map[string]*kind)}
}

func (s *sampler) warn(msg string, attrs ...any) { s.write(s.log.Warn, msg, attrs) }

func (s *sampler) error(msg string, attrs ...any) { s.write(s.log.Error, msg, attrs) }

func (s *sampler) write(write func(msg string, attrs ...any), msg string, attrs []any) {
	omitted, ok := s.admit(msg)
	if !ok {
		return
	}
	if omitted > 0 {
		attrs = append(attrs, "omitted", omitted)
	}
	write(msg, attrs...)
}

// admit tells whether a line of this kind may be written now, and how many were
// left out since the last that was.
func (s *sampler) admit(msg string) (omitted int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[msg]
	if k == nil {
		k = &kind{limit: rate.NewLimiter(rate.Every(s.every), s.burst)}
		s.kinds[msg] = k
	}
	if !k.limit.Allow() {
		k.omitted++
		return 0, false
	}
	omitted, k.omitted = k.omitted, 0
	return omitted, true
}
