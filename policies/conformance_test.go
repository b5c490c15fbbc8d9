package policies_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

// The conformance scenarios through the pure parts alone: policies, the obvious
// index, the gate and the decision. What they say of the wire is tested with the
// server; here a wrong rule shows without one.

const conformanceDir = "../integration/testdata/conformance"

func TestConformanceScenariosHoldWithoutAServer(t *testing.T) {
	for _, file := range []string{"rules.json", "worlds.json", "cold-start.json"} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(conformanceDir, file))
			require.NoError(t, err)
			var scenarios []scenario
			require.NoError(t, json.Unmarshal(data, &scenarios))
			require.NotEmpty(t, scenarios)

			var sources []policies.Source
			for _, s := range scenarios {
				for _, p := range s.Policies {
					sources = append(sources, policies.Source{Name: s.Name, Data: p})
				}
			}
			set, err := policies.Parse(sources...)
			require.NoError(t, err)

			nowMS := int64(1_700_000_000_000)
			index := rankingtest.New(func() int64 { return nowMS })
			if file != "cold-start.json" {
				require.NoError(t, index.Report(context.Background(), &ranking.Report{
					Scope: ranking.Scope{Tenant: "somebody-else", Model: "m"}, Replica: "r", Scheme: "s",
					Entries: []ranking.Entry{{Hash: []byte("h"), Tokens: 16}},
				}))
			}
			for _, s := range scenarios {
				t.Run(s.Name, func(t *testing.T) {
					w := world{t: t, index: index, set: set, startMS: nowMS}
					for i, step := range s.Steps {
						nowMS++
						w.step(step, s.Name+" step "+strconv.Itoa(i)+": "+s.Why)
					}
				})
			}
		})
	}
}

type world struct {
	t       *testing.T
	index   *rankingtest.Model
	set     *policies.Set
	startMS int64
}

func (w *world) step(s step, what string) {
	var at int64
	if s.AgeMS != nil {
		at = w.startMS - *s.AgeMS
	}
	switch {
	case s.Report != nil:
		w.report(s.Report, at)
	case s.Event != nil:
		w.event(s.Event, at)
	case s.Lookup != nil:
		w.lookup(s.Lookup, s.Expect, what)
	case s.State != nil:
		state, err := w.index.State(context.Background(), ranking.Scope{Tenant: s.State.Tenant, Model: s.State.Model})
		require.NoError(w.t, err)
		require.Equal(w.t, number(s.Expect.Summary.Prefixes), state.Prefixes, what)
		require.Len(w.t, state.Replicas, len(s.Expect.Replicas), what)
		for i, r := range s.Expect.Replicas {
			require.Equal(w.t, r.Replica, state.Replicas[i].ID, what)
			require.Equal(w.t, r.ranking(), state.Replicas[i].Stats, what)
		}
	default:
		require.Fail(w.t, "a step of an unknown kind", what)
	}
}

func (s *stats) ranking() ranking.Stats {
	return ranking.Stats{
		MemoryBytes: number(s.Memory), HitRate: s.HitRate.orZero(), Pressure: s.Pressure.orZero(),
		ClientVersion: s.Version, T2HitTokens: number(s.T2Hit), T2QueryTokens: number(s.T2Query),
	}
}

func (w *world) report(u *update, at int64) {
	r := &ranking.Report{
		Scope: ranking.Scope{Tenant: u.Tenant, Model: u.Model}, Replica: u.Replica, Scheme: u.Scheme, SeenMS: at,
	}
	if u.Stats != nil {
		s := u.Stats.ranking()
		r.Stats = &s
	}
	for _, p := range u.Prefixes {
		adapter := p.Adapter
		if adapter == "" {
			adapter = u.Adapter
		}
		entry := func(hash []byte, tokens int32) {
			r.Entries = append(r.Entries, ranking.Entry{
				Adapter: adapter, Hash: hash, Tokens: tokens, Tier: ranking.TierOfReport(int32(p.Tier)),
			})
		}
		chain := len(p.Hashes)+len(p.Counts) > 0
		if chain && len(p.Hashes) != len(p.Counts) {
			continue
		}
		var sum int32
		for i, h := range p.Hashes {
			sum += p.Counts[i]
			entry(h, sum)
		}
		if !chain || len(p.Hash) > 0 {
			entry(p.Hash, p.Tokens)
		}
	}
	require.NoError(w.t, w.index.Report(context.Background(), r))
}

func (w *world) event(e *event, at int64) {
	kinds := map[string]ranking.EventKind{
		"PREFIX_EVICTED": ranking.EventEvicted, "ALL_CLEARED": ranking.EventCleared, "REPLICA_UPDATED": ranking.EventAlive,
	}
	if kind, ok := kinds[e.Type]; ok {
		require.NoError(w.t, w.index.Publish(context.Background(), &ranking.Event{
			Kind: kind, Scope: ranking.Scope{Tenant: e.Tenant, Model: e.Model},
			Replica: e.Replica, Hash: e.Hash, Adapter: e.Adapter, AtMS: at,
		}))
	}
}

func (w *world) lookup(l *lookup, want expect, what string) {
	policy, knobs := w.set.For(l.Tenant), ranking.DefaultKnobs()
	in, reason, consulted := resolve(l, policy), ranking.ReasonNoHint, false
	var got []ranking.Candidate
	switch {
	case policy.RequireChain && (len(l.Hashes) == 0 || len(l.Hashes) != len(l.Counts)):
		reason = ranking.ReasonPolicyRequiresChain
	case in == nil:
	default:
		if gated, stop := ranking.Gate(in, policy); stop {
			reason = gated
			break
		}
		consulted = true
		var ev ranking.Evidence
		require.NoError(w.t, w.index.Match(context.Background(), &in.Query, &ev))
		reason, got = ranking.Decide(in, &ev, policy, &knobs, nil)
	}

	require.Equal(w.t, want.Reason, reason, what)
	if consulted {
		require.Equal(w.t, want.Adapter, l.Adapter, what)
	} else {
		require.Empty(w.t, want.Adapter, what)
	}
	require.True(w.t, slices.IsSortedFunc(got, func(a, b ranking.Candidate) int {
		if a.Score != b.Score {
			return int(math.Copysign(1, float64(b.Score-a.Score)))
		}
		return strings.Compare(a.ReplicaID, b.ReplicaID)
	}), what)
	require.Len(w.t, got, len(want.Scores), what)
	for _, s := range want.Scores {
		i := slices.IndexFunc(got, func(c ranking.Candidate) bool { return c.ReplicaID == s.Replica })
		require.GreaterOrEqual(w.t, i, 0, "%s: %s is not in %v", what, s.Replica, got)
		require.Equal(w.t, s.Matched, got[i].MatchedTokens, what)
		require.Equal(w.t, int32(s.Tier), got[i].Tier.Wire(), what)
		require.InDelta(w.t, s.HitProb, got[i].HitProb, 0.004, what)
		require.InDelta(w.t, s.Score, got[i].Score, 0.001+0.004*max(1, float64(s.Matched)), what)
	}
}

// resolve turns a request into what to ask of the index; nil if it answers itself.
func resolve(l *lookup, p *ranking.Policy) *ranking.Input {
	const blockSize = 16
	in := &ranking.Input{TTFTMS: l.SLO.TTFTMS, PrefixTokens: int64(l.PrefixTokens)}
	in.Scope = ranking.Scope{Tenant: l.Tenant, Model: l.Model}
	in.Space = ranking.Space{Scheme: l.Scheme, Adapter: l.Adapter}
	in.TTLMS = p.EvictionTTL.Milliseconds()
	hashes, counts := l.Hashes, l.Counts
	chain := len(hashes)+len(counts) > 0
	switch {
	case chain || len(l.Hash) > 0:
	case len(l.TokenIDs) > 0:
		if len(l.TokenIDs) < blockSize {
			return nil
		}
		for _, b := range slices.Collect(slices.Chunk(ranking.AppendFingerprints(nil, nil, l.TokenIDs, blockSize), 8)) {
			hashes, counts = append(hashes, b), append(counts, blockSize)
		}
		chain = true
		if !p.ChainMatching {
			l.Hash, in.PrefixTokens = hashes[len(hashes)-1], int64(len(hashes)*blockSize)
		}
	case l.Text != "":
		return nil
	}
	if chain && p.ChainMatching {
		if len(hashes) != len(counts) {
			return nil
		}
		in.Hashes, in.Tokens, in.PrefixTokens = hashes, counts, 0
		for _, n := range counts {
			in.PrefixTokens += int64(n)
		}
		return in
	}
	if chain && len(l.Hash) == 0 {
		return nil
	}
	in.Exact, in.Hashes = true, [][]byte{l.Hash}
	return in
}
