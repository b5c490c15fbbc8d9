package sidecar_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"inferencecache.io/lookuptier/ranking"
)

// step is what one batch said.
type step struct {
	stored, removed []*node // stored is a part of one path
	cleared, bad    bool    // bad: nobody can read it
}

// loss is a range of batches that the sidecar says it could not get: from, and before which.
type loss struct{ from, before uint64 }

// lossLog is a log handler that keeps what the sidecar says of lost batches.
type lossLog struct {
	mu  sync.Mutex
	all []loss
}

func (l *lossLog) logger() *slog.Logger                          { return slog.New(l) }
func (l *lossLog) Enabled(_ context.Context, at slog.Level) bool { return at >= slog.LevelWarn }
func (l *lossLog) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l *lossLog) WithGroup(string) slog.Handler                 { return l }
func (l *lossLog) Handle(_ context.Context, r slog.Record) error {
	if !strings.HasPrefix(r.Message, "batches are lost") {
		return nil
	}
	var this loss
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "from":
			this.from = a.Value.Uint64()
		case "before":
			this.before = a.Value.Uint64()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, this)
	return nil
}

func (l *lossLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
}

func (l *lossLog) sofar() []loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]loss(nil), l.all...)
}

// belief is what can be known of a block.
type belief int

const (
	unknown belief = iota
	doubtful
	certain
)

// provable is the part of the engine's cache that can be known from the batches that were not lost, and nothing
// more: decision 0041, written down a second time, on nodes rather than hashes. Without a loss since
// the cache was last empty it is the whole cache.
func (s *simulator) provable() map[*node]bool {
	losses := s.losses.sofar()
	b := map[*node]belief{}
	// placed: it is known where the block stands, because it or something behind it is kept in mind.
	var placed func(n *node) bool
	placed = func(n *node) bool {
		if n == s.root || b[n] != unknown {
			return true
		}
		for _, k := range n.kids {
			if placed(k) {
				return true
			}
		}
		return false
	}
	for seq := 0; seq < len(s.steps); seq++ {
		for len(losses) > 0 && losses[0].from == uint64(seq) {
			for n := range b {
				b[n]--
				if b[n] == unknown {
					delete(b, n)
				}
			}
			seq = int(losses[0].before)
			losses = losses[1:]
		}
		if seq >= len(s.steps) {
			break
		}
		at := &s.steps[seq]
		if at.cleared {
			clear(b)
		}
		if len(at.stored) > 0 && placed(at.stored[0].parent) {
			for n := at.stored[0].parent; b[n] == doubtful; n = n.parent {
				b[n] = certain
			}
			for _, n := range at.stored {
				b[n] = certain
			}
		}
		for _, n := range at.removed {
			delete(b, n)
		}
	}
	out := map[*node]bool{}
	for n, is := range b {
		if is == certain {
			out[n] = true
		}
	}
	return out
}

// compare looks every block up that ever was. wrong are those that the index has and the engine has not; missing are
// those that the index has not although they can be known, extra those that it has although they cannot.
func (s *simulator) compare(x *tier) (wrong, missing, extra int, err error) {
	want := s.provable()
	for n := range want {
		if n.used == 0 {
			return 0, 0, 0, fmt.Errorf("a block at depth %d is thought to be provable, and the engine does not have it", n.depth)
		}
	}
	for _, n := range s.all {
		fp := make([]byte, 0, 8)
		for i := range 8 {
			fp = append(fp, byte(n.fp>>(56-8*i)))
		}
		q := &ranking.Query{Scope: x.scope, Space: ranking.Space{Scheme: scheme}, Hashes: [][]byte{fp}, Exact: true, TTLMS: 1_800_000}
		var ev ranking.Evidence
		ctx, cancel := context.WithTimeout(x.t.Context(), 2*time.Second)
		err = x.store.Match(ctx, q, &ev)
		cancel()
		if err != nil {
			return 0, 0, 0, err
		}
		switch has := len(ev.Runs) > 0; {
		case has && n.used == 0:
			wrong++
		case has && !want[n]:
			extra++
		case !has && want[n]:
			missing++
		case has && ev.Runs[0].Tokens != int64(4*n.depth):
			return 0, 0, 0, fmt.Errorf("%d tokens at depth %d", ev.Runs[0].Tokens, n.depth)
		}
	}
	return wrong, missing, extra, nil
}

// settles waits until the index has what can be known of the engine's cache, block by block, and returns how many
// blocks of the cache cannot be known.
func (s *simulator) settles(x *tier, what string) (unprovable int) {
	s.t.Helper()
	var wrong, missing, extra int
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if wrong, missing, extra, err = s.compare(x); err == nil && wrong+missing+extra == 0 {
			return s.cached - len(s.provable())
		}
	}
	s.t.Fatalf("%s: of %d blocks %d are wrong, %d missing, %d unproved (losses %v), error %v", what, len(s.all), wrong, missing, extra, s.losses.sofar(), err)
	return 0
}
