package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/sidecar/events"
	"inferencecache.io/lookuptier/sidecar/follow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink keeps the first hash of each event.
type sink struct {
	mu    sync.Mutex
	seen  []events.Hash
	ranks []int
}

func (s *sink) Apply(b *events.Batch) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range b.Events {
		s.seen = append(s.seen, e.Hashes[0])
		s.ranks = append(s.ranks, b.Rank)
	}
	return 0
}
func (*sink) Joined(bool)    {}
func (*sink) Lost()          {}
func (*sink) Restarted()     {}
func (*sink) Replaying(bool) {}
func (*sink) Live(bool)      {}

func TestAFileIsPublishedAndReplayed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(`
{"events": [["BlockRemoved", [18446744073709551615]]], "ts": 5}
{"events": [{"type": "BlockRemoved", "block_hashes": [{"$hex": "`+strings.Repeat("ab", 32)+`"}]}], "shape": "map", "rank": 1, "swallow": true}
{"events": [["BlockRemoved", [-2]]], "after_ms": 1}
`), 0o600))
	dir := t.TempDir() // of short names, as a socket's must be
	ep, rp := "ipc://"+dir+"/e", "ipc://"+dir+"/r"
	s := &sink{}
	f, err := follow.New(follow.Options{Endpoint: ep, Replay: rp, Logger: slog.New(slog.DiscardHandler)}, s)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	var out, errs bytes.Buffer
	publishing, stop := context.WithCancel(t.Context())
	var code int
	wg.Go(func() {
		code = run(publishing, []string{file, "--bind", ep, "--replay-bind", rp, "--stay", "0s"}, nil, &out, &errs)
	})
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.seen) == 3
	}, 20*time.Second, time.Millisecond)
	stop()
	cancel()
	wg.Wait()
	require.Zero(t, code, errs.String())
	require.Contains(t, out.String(), "published 3 batches")
	require.Equal(t, events.Hash{Lo: 1<<64 - 1}, s.seen[0])
	require.NotZero(t, s.seen[1].Hi)
	require.Equal(t, events.Hash{Lo: 1<<64 - 2}, s.seen[2])
	require.Equal(t, []int{events.NoRank, 1, events.NoRank}, s.ranks)
}

func TestALineThatMakesNoSenseIsNamed(t *testing.T) {
	for line, want := range map[string]string{
		`{"events": [], "raw": "00"}`:       "either events or raw",
		`{}`:                                "either events or raw",
		`{"raw": "xyz"}`:                    "raw",
		`{"evnts": []}`:                     "evnts",
		`{"events": [], "shape": "circle"}`: "array or map",
		`{"events": [[{"$hex": "0"}]]}`:     "$hex",
		`{"events": []} 1`:                  "more than one",
		`{"events": [], "after_ms": -1}`:    "0 or more",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"-", "--bind", "tcp://127.0.0.1:0", "--replay-bind", "", "--subscribers", "0"}, strings.NewReader(line), &out, &errs)
		require.Equal(t, 1, code, line)
		require.Contains(t, errs.String(), "line 1", line)
		require.Contains(t, errs.String(), want, line)
	}
	var out, errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"--rate=-1", "-"}, nil, &out, &errs))
}
