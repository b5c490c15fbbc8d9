package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// Freshness moves while a scenario runs, and scores with it.
const (
	scoreSlack         = 0.001
	scoreSlackPerToken = 0.004
	probabilitySlack   = 0.004
)

// What a step loses while it comes late, at most, by the scenarios' shortest times: a
// hold's freshness is gone after 30 min, that of TENANT_HOT's stats after 5. The bias
// of a tight SLO makes a score fall up to three times as fast as what it rests on.
const (
	holdLife  = 30 * time.Minute
	statsLife = 5 * time.Minute
	sloPace   = 3
)

// CompareLookup lists how a reply differs from the one expected; nil if it does
// not. Scores and probabilities have some slack; replicas are compared by id,
// and the reply's own order is checked for itself.
func CompareLookup(want, got *pb.LookupRouteResponse) error {
	return CompareLate(want, got, 0)
}

// CompareLate is CompareLookup for a reply to a lookup that came so late in its
// scenario: on a machine that is slow enough, the slack alone is not.
func CompareLate(want, got *pb.LookupRouteResponse, late time.Duration) error {
	var diffs []error
	differ := func(format string, args ...any) { diffs = append(diffs, fmt.Errorf(format, args...)) }

	if got.GetReasonCode() != want.GetReasonCode() {
		differ("reason %s, want %s", got.GetReasonCode(), want.GetReasonCode())
	}
	if got.GetAdapterId() != want.GetAdapterId() {
		differ("adapter %q, want %q", got.GetAdapterId(), want.GetAdapterId())
	}
	if g, w := len(got.GetTokenIds()), len(want.GetTokenIds()); g != w {
		differ("%d token ids, want %d", g, w)
	}
	if got.GetLookupLatencyUs() < 0 {
		differ("latency of %d µs", got.GetLookupLatencyUs())
	}
	if err := inOrder(got.GetReplicaScores()); err != nil {
		diffs = append(diffs, err)
	}
	wanted := map[string]*pb.ReplicaScore{}
	for _, w := range want.GetReplicaScores() {
		wanted[w.GetReplicaId()] = w
	}
	seen := map[string]bool{}
	for _, g := range got.GetReplicaScores() {
		id := g.GetReplicaId()
		w, ok := wanted[id]
		switch {
		case seen[id]:
			differ("replica %s twice", id)
		case !ok:
			differ("replica %s, which should not be there", id)
		default:
			diffs = append(diffs, compareScore(w, g, late)...)
		}
		seen[id] = true
	}
	for id := range wanted {
		if !seen[id] {
			differ("replica %s is missing", id)
		}
	}
	return errors.Join(diffs...)
}

func compareScore(want, got *pb.ReplicaScore, late time.Duration) []error {
	var diffs []error
	differ := func(what string, g, w any) {
		diffs = append(diffs, fmt.Errorf("replica %s: %s %v, want %v", got.GetReplicaId(), what, g, w))
	}
	if g, w := got.GetMatchedTokens(), want.GetMatchedTokens(); g != w {
		differ("matched tokens", g, w)
	}
	if g, w := got.GetTier(), want.GetTier(); g != w {
		differ("tier", g, w)
	}
	slack := scoreSlack + scoreSlackPerToken*max(1, float64(want.GetMatchedTokens()))
	aged := float64(late) / float64(holdLife)
	if tokens := float64(want.GetMatchedTokens()); tokens > 0 {
		slack += sloPace * aged * tokens
	} else {
		slack += sloPace * float64(late) / float64(statsLife) * float64(want.GetEstimatedCacheHitProb())
	}
	if g, w := got.GetScore(), want.GetScore(); !within(g, w, slack) {
		differ("score", g, w)
	}
	if g, w := got.GetEstimatedCacheHitProb(), want.GetEstimatedCacheHitProb(); !within(g, w, probabilitySlack+aged) {
		differ("probability", g, w)
	}
	return diffs
}

// inOrder checks best first, ties by replica id.
func inOrder(scores []*pb.ReplicaScore) error {
	if slices.IsSortedFunc(scores, func(a, b *pb.ReplicaScore) int {
		switch {
		case a.GetScore() > b.GetScore():
			return -1
		case a.GetScore() < b.GetScore():
			return 1
		}
		return strings.Compare(a.GetReplicaId(), b.GetReplicaId())
	}) {
		return nil
	}
	return fmt.Errorf("not best first with ties by id: %v", scores)
}

// CompareState lists how a state differs from the one expected: the number of
// prefixes, and each replica's stats by id.
func CompareState(want, got *pb.GetCacheStateResponse) error {
	var diffs []error
	if g, w := got.GetSummary().GetTotalPrefixes(), want.GetSummary().GetTotalPrefixes(); g != w {
		diffs = append(diffs, fmt.Errorf("%d prefixes, want %d", g, w))
	}
	stats := map[string]*pb.ReplicaStats{}
	for _, g := range got.GetReplicas() {
		if stats[g.GetReplicaId()] != nil {
			diffs = append(diffs, fmt.Errorf("stats of %s twice", g.GetReplicaId()))
		}
		stats[g.GetReplicaId()] = g
	}
	for _, w := range want.GetReplicas() {
		g := stats[w.GetReplicaId()]
		delete(stats, w.GetReplicaId())
		if g == nil {
			diffs = append(diffs, fmt.Errorf("stats of %s are missing", w.GetReplicaId()))
		} else if !sameStats(w, g) {
			diffs = append(diffs, fmt.Errorf("stats %v, want %v", g, w))
		}
	}
	for id := range stats {
		diffs = append(diffs, fmt.Errorf("stats of %s, which should not be there", id))
	}
	return errors.Join(diffs...)
}

func sameStats(a, b *pb.ReplicaStats) bool {
	const slack = 1e-6 // of decimal text
	return a.GetCacheMemoryBytes() == b.GetCacheMemoryBytes() &&
		within(a.GetHitRate(), b.GetHitRate(), slack) &&
		within(a.GetPressure(), b.GetPressure(), slack) &&
		a.GetClientVersion() == b.GetClientVersion() &&
		a.GetT2HitTokens() == b.GetT2HitTokens() &&
		a.GetT2QueryTokens() == b.GetT2QueryTokens()
}

// within is false for a NaN, which no reply may carry.
func within(got, want float32, slack float64) bool {
	return math.Abs(float64(got)-float64(want)) <= slack
}
