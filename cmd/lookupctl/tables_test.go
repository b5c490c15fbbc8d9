package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/replay"
)

func someResult() (*replay.Options, *replay.Result) {
	d := replay.Distribution{Min: 400, Max: 700, Mean: 600, Stddev: 123.4}
	return &replay.Options{Engines: 2, Blocks: 1000, BlockTokens: 512}, &replay.Result{
		Requests: 1200, Total: 1200, Blocks: 20_000, Seconds: 2.5,
		Reuse: []replay.Reuse{
			{Policy: replay.PolicyHints, Reused: 8000, Share: 0.4},
			{Policy: replay.PolicyRoundRobin, Reused: 5000, Share: 0.25},
			{Policy: replay.PolicyPooled, Reused: 9000, Share: 0.45},
			{Policy: replay.PolicyUnbounded, Reused: 10_000, Share: 0.5},
		},
		Reasons: []replay.ReasonCount{{Reason: "PREFIX_MATCH", Count: 900, Share: 0.75}, {Reason: "NO_HINT", Count: 300, Share: 0.25}},
		Routing: replay.Routing{Followed: 900, RoundRobin: 298, Warmup: 2, Foreign: 3, Exact: 898, Overstated: 1, Understated: 1, Retries: 4, LagMS: 12.5},
		Latency: replay.Latency{
			Lookup: replay.Percentiles{Calls: 1200, P50: 310, P90: 820.4, P99: 4100, Max: 1_250_000},
			InPod:  replay.Percentiles{Calls: 1200, P50: 90, P90: 110, P99: 400, Max: 900},
			Report: replay.Percentiles{Calls: 1000, P50: 500, P90: 600, P99: 700, Max: 800},
		},
		Spread: replay.Spread{Requests: d, Blocks: d, Computed: d},
		Engines: []replay.EngineLoad{
			{ID: "replay-engine-0", Requests: 500, Blocks: 9000, Reused: 4000, Stored: 5000, Evicted: 4000, Resident: 1000},
			{ID: "replay-engine-1", Requests: 700, Blocks: 11_000, Reused: 4000, Stored: 7000, Evicted: 6000, Resident: 1000},
		},
	}
}

func TestReplayTables(t *testing.T) {
	var out bytes.Buffer
	o, r := someResult()
	require.NoError(t, writeReplay(&session{streams: streams{out: &out}}, o, r))
	require.Equal(t, `1,200 requests, 20,000 prompt blocks of 512 tokens, in 2.50 s; 2 engines of 1,000 blocks

REUSED PROMPT BLOCKS              BLOCKS  SHARE
with the tier's hints             8,000   40.0 %
round robin                       5,000   25.0 %
one shared cache of 2,000 blocks  9,000   45.0 %
one unbounded shared cache        10,000  50.0 %

REASON        LOOKUPS  SHARE
PREFIX_MATCH  900      75.0 %
NO_HINT       300      25.0 %

900 requests followed the hint, 298 went round robin without one, 2 to warm the engines up. 3 hints named a replica that is none of the engines: something else writes to the same tenant and model. Of 900 followed prefix matches, the engine held exactly what the hint said 898 times, less once, more once. 4 writes had to be sent again. The latest request started 12.50 ms after its time.

LATENCY               CALLS  P50     P90     P99      MAX
lookup, round trip    1,200  310 µs  820 µs  4.10 ms  1.25 s
lookup, in the pod    1,200  90 µs   110 µs  400 µs   900 µs
report, round trip    1,000  500 µs  600 µs  700 µs   800 µs
eviction, round trip  0      -       -       -        -

SPREAD OVER ENGINES          MIN  MEAN  MAX  STDDEV
requests                     400  600   700  123
prompt blocks                400  600   700  123
blocks computed, not reused  400  600   700  123

ENGINE           REQUESTS  BLOCKS  REUSED  STORED  EVICTED  RESIDENT
replay-engine-0  500       9,000   4,000   5,000   4,000    1,000
replay-engine-1  700       11,000  4,000   7,000   6,000    1,000
`, out.String())
}

func TestTablesFitTheTerminal(t *testing.T) {
	var out bytes.Buffer
	o, r := someResult()
	r.Engines[0].ID = "model-server-in-a-rather-long-namespace-7f9c8d6b5-x2x4q"
	r.Engines[1].ID = "model-server-in-a-rather-long-namespace-7f9c8d6b5-k8s9w"
	require.NoError(t, writeReplay(&session{streams: streams{out: &out}, width: 72}, o, r))
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), 72, line)
	}
	require.Contains(t, out.String(), "model-ser…6b5-x2x4q")
	require.Contains(t, out.String(), "model-ser…6b5-k8s9w")
}

func TestNamesFromTheWireCannotUpsetATerminal(t *testing.T) {
	require.Equal(t, `"\x1b[2J"`, cell("\x1b[2J"))
	require.Equal(t, `"a\tb"`, cell("a\tb"))
	require.Equal(t, `"a\nb"`, cell("a\nb"))
	require.Equal(t, `"\xff"`, cell("\xff"))
	require.Equal(t, "-", cell(""))
	require.Equal(t, "größe 7", cell("größe 7"))
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		require.Equal(t, want, grouped(n))
	}
	require.Equal(t, "1 hash", plural(1, "hash"))
	require.Equal(t, "2 hashes", plural(2, "hash"))
	require.Equal(t, "1,000 blocks", plural(1000, "block"))
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 80 << 30: "80.0 GiB", 1 << 62: "4.0 EiB"} {
		require.Equal(t, want, size(n))
	}
	require.Equal(t, "one two\nthree", wrap("one two three", 8))
	require.Equal(t, "one two three", wrap("one two three", 0))
}
