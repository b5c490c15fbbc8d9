package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentilesAreValuesThatOccurred(t *testing.T) {
	var l latencies
	for i := 100; i >= 1; i-- {
		l.add(time.Duration(i) * time.Microsecond)
	}
	require.Equal(t, Percentiles{Calls: 100, P50: 50, P90: 90, P99: 99, Max: 100}, l.percentiles())

	var one latencies
	one.add(1500 * time.Nanosecond)
	require.Equal(t, Percentiles{Calls: 1, P50: 1.5, P90: 1.5, P99: 1.5, Max: 1.5}, one.percentiles())
	require.Equal(t, Percentiles{}, new(latencies).percentiles())
}

func TestSpreadOverEngines(t *testing.T) {
	s := spreadOf([]EngineLoad{{Requests: 2, Blocks: 10, Reused: 10}, {Requests: 4, Blocks: 30, Reused: 10}})
	require.Equal(t, Distribution{Min: 2, Max: 4, Mean: 3, Stddev: 1}, s.Requests)
	require.Equal(t, Distribution{Min: 10, Max: 30, Mean: 20, Stddev: 10}, s.Blocks)
	require.Equal(t, Distribution{Min: 0, Max: 20, Mean: 10, Stddev: 10}, s.Computed)
}

func TestReasonsAreSortedByCountThenName(t *testing.T) {
	require.Equal(t, []ReasonCount{
		{Reason: "B", Count: 2, Share: 0.5}, {Reason: "A", Count: 1, Share: 0.25}, {Reason: "C", Count: 1, Share: 0.25},
	}, reasonCounts(map[string]int{"C": 1, "B": 2, "A": 1}, 4))
}

func TestBaselinesOnASmallTrace(t *testing.T) {
	requests := []Request{
		{Blocks: []uint64{0, 1}}, {Blocks: []uint64{0, 2}}, // one to each engine
		{Blocks: []uint64{0, 2}}, {Blocks: []uint64{0, 1}}, // each to the wrong one
	}
	o := Options{Engines: 2, Blocks: 2}
	rows, blocks := compare(requests, &o, 3, 8)
	require.EqualValues(t, 8, blocks)
	require.Equal(t, []Reuse{
		{Policy: PolicyHints, Reused: 3, Share: 0.375},
		{Policy: PolicyRoundRobin, Reused: 2, Share: 0.25},
		{Policy: PolicyPooled, Reused: 5, Share: 0.625},
		{Policy: PolicyUnbounded, Reused: 5, Share: 0.625},
	}, rows)
}

func TestPressureFollowsTheClockOfTheTrace(t *testing.T) {
	var running finishTimes
	running.start(0, 100, 20*time.Millisecond)   // ends at 2,000
	running.start(500, 10, 20*time.Millisecond)  // ends at 700
	running.start(600, 0, 20*time.Millisecond)   // ends at once
	running.start(600, 500, 20*time.Millisecond) // ends at 10,600
	require.Equal(t, 3, running.runningAt(650))
	require.Equal(t, 2, running.runningAt(700))
	require.Equal(t, 1, running.runningAt(2000))
	require.Equal(t, 0, running.runningAt(20_000))
	require.InDelta(t, 0.75, pressure(3, 4), 1e-6)
	require.InDelta(t, 1, pressure(9, 4), 1e-6)

	var s everySecond
	require.False(t, s.passed(999))
	require.True(t, s.passed(1000))
	require.False(t, s.passed(1999))
	require.True(t, s.passed(5000))
}

func TestBlockHashesAreOneToOneAndDependOnTheSeed(t *testing.T) {
	seen := map[uint64]bool{}
	for id := range uint64(20_000) {
		seen[hashOf(id, 0)] = true
		seen[hashOf(id, 1)] = true
	}
	require.Len(t, seen, 40_000)
}

func TestTheLastBlockOfAChainIsPartial(t *testing.T) {
	c := chainOf(&Request{InputTokens: 1030, Blocks: []uint64{4, 5, 6}}, 512, 0)
	require.Equal(t, []int32{512, 512, 6}, c.counts)
	require.Len(t, c.hashes[2], hashBytes)
}
