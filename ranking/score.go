package ranking

import "math"

// The factors of a score. Each is a pure function of its inputs, never NaN and
// never below 0, so that no stored value, however odd, can poison an order.

// freshness falls from 1 to 0 over the TTL. A hold from the future is as fresh
// as a new one, never fresher.
func freshness(ageMS, ttlMS int64) float32 {
	if ageMS <= 0 {
		return 1
	}
	if ageMS >= ttlMS {
		return 0
	}
	return float32(1 - float64(ageMS)/float64(ttlMS))
}

// pressureFactor is the share of its score that a loaded replica keeps: at most
// 1, so that a negative pressure never lifts it, and 1 when the replica reported
// none within the TTL.
func pressureFactor(r *Replica, nowMS, ttlMS int64, weight float32) float32 {
	if r.StatsAtMS == 0 || nowMS-r.StatsAtMS >= ttlMS {
		return 1
	}
	f := 1 - weight*r.Stats.Pressure
	switch {
	case f >= 1 || f != f: // NaN: the product of garbage is no evidence of load
		return 1
	case f <= 0:
		return 0
	default:
		return f
	}
}

// sloFactor lifts fresh replicas for a request that is in a hurry.
func sloFactor(fresh float32, ttftMS int32, k *Knobs) float32 {
	if ttftMS <= 0 || ttftMS >= k.SLOTightTTFTMS {
		return 1
	}
	return 1 + fresh*k.SLOTightBias
}

// powerFactor is how much a match tells replicas apart: what all of the serving
// replicas hold tells nothing, and with one replica there is nothing to tell.
// matched is how many replicas matched at least as much.
func powerFactor(matched, serving int) float32 {
	if serving <= 1 {
		return 1
	}
	if matched >= serving {
		return 0
	}
	return float32(1 - float64(matched)/float64(serving))
}

// finite is a product of factors as a score: knobs of absurd size must not
// yield what cannot be compared.
func finite(score float32) float32 {
	switch {
	case score > math.MaxFloat32:
		return math.MaxFloat32
	case score > 0:
		return score
	default: // negative, NaN, or −0, which would sort as the best
		return 0
	}
}

// saturate is a token sum as a reply carries it.
func saturate(tokens int64) int32 {
	return int32(max(0, min(tokens, math.MaxInt32)))
}
