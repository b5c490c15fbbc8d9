package ranking

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var nan = float32(math.NaN())
var inf = float32(math.Inf(1))

func TestFreshnessFallsFromOneToZeroOverTheTTL(t *testing.T) {
	for _, tc := range []struct {
		age, ttl int64
		want     float32
	}{
		{0, 1000, 1}, {-5, 1000, 1}, {math.MinInt64, 1000, 1},
		{250, 1000, 0.75}, {999, 1000, 0.001}, {1000, 1000, 0}, {5000, 1000, 0}, {math.MaxInt64, 1000, 0},
		{1, 0, 0}, {1, -1, 0},
		{1 << 40, 1 << 42, 0.75}, // decades: no float32 takes part before the division
	} {
		require.InDelta(t, tc.want, freshness(tc.age, tc.ttl), 1e-6, "%+v", tc)
	}
}

func TestPressureFactorOnlyEverLowersAScore(t *testing.T) {
	for _, tc := range []struct {
		name             string
		pressure, weight float32
		statsAt          int64
		want             float32
	}{
		{"idle", 0, 1, 9000, 1},
		{"half loaded", 0.5, 1, 9000, 0.5},
		{"weighted", 0.5, 0.5, 9000, 0.75},
		{"saturated", 1, 1, 9000, 0},
		{"over 1 clamps at 0", 3, 1, 9000, 0},
		{"negative never boosts", -0.5, 1, 9000, 1},
		{"weight 0 is off", 1, 0, 9000, 1},
		{"no stats", 1, 1, 0, 1},
		{"stats of the TTL's age", 1, 1, 8000, 1},
		{"stats just within the TTL", 1, 1, 8001, 0},
		{"stats from the future", 1, 1, 20000, 0},
		{"not a number", nan, 1, 9000, 1},
		{"infinite", inf, 1, 9000, 0},
		{"infinite with weight 0", inf, 0, 9000, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &Replica{StatsAtMS: tc.statsAt, Stats: Stats{Pressure: tc.pressure}}
			require.InDelta(t, tc.want, pressureFactor(r, 10_000, 2000, tc.weight), 1e-6)
		})
	}
}

func TestSLOFactorFavoursFreshHoldsForTightRequests(t *testing.T) {
	k := DefaultKnobs()
	for _, tc := range []struct {
		fresh float32
		ttft  int32
		want  float32
	}{
		{1, 0, 1}, {1, -1, 1}, {1, 1, 2}, {0.5, 199, 1.5}, {1, 200, 1}, {0, 100, 1},
	} {
		require.InDelta(t, tc.want, sloFactor(tc.fresh, tc.ttft, &k), 1e-6, "%+v", tc)
	}
	require.InDelta(t, 1, sloFactor(1, 100, &Knobs{SLOTightTTFTMS: 0, SLOTightBias: 1}), 0, "0 ms: nothing is tight")
	require.InDelta(t, 1, sloFactor(1, 100, &Knobs{SLOTightTTFTMS: 200, SLOTightBias: 0}), 0, "bias 0: no boost")
}

func TestPowerFactorIsTheShareThatDoesNotHoldAsMuch(t *testing.T) {
	for _, tc := range []struct {
		matched, serving int
		want             float32
	}{
		{1, 0, 1}, {1, 1, 1}, {1, 2, 0.5}, {2, 2, 0}, {3, 2, 0}, {1, 4, 0.75}, {3, 4, 0.25}, {1, 300, 299.0 / 300},
	} {
		require.InDelta(t, tc.want, powerFactor(tc.matched, tc.serving), 1e-6, "%+v", tc)
	}
}

func TestScoresStayFinite(t *testing.T) {
	require.Zero(t, finite(nan))
	require.Zero(t, finite(-inf))
	require.Zero(t, finite(-1))
	require.InDelta(t, math.MaxFloat32, finite(inf), 0)
	require.InDelta(t, 12.5, finite(12.5), 0)
	require.Zero(t, math.Float32bits(finite(float32(math.Copysign(0, -1)))), "−0 must not sort as the best")
}

func TestTokenSumsSaturate(t *testing.T) {
	for from, want := range map[int64]int32{
		math.MinInt64: 0, -1: 0, 0: 0, 64: 64, math.MaxInt32: math.MaxInt32, math.MaxInt32 + 1: math.MaxInt32, math.MaxInt64: math.MaxInt32,
	} {
		require.Equal(t, want, saturate(from))
	}
}
