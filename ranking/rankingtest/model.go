// Package rankingtest has the index as one would write it without a thought for
// speed: nested maps and loops. Tests compare real indexes with it.
package rankingtest

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"

	"inferencecache.io/lookuptier/ranking"
)

// key is a prefix key within a scope.
type key struct {
	space ranking.Space
	hash  string
}

// hold is one replica's hold of a key.
type hold struct {
	tokens int32
	seenMS int64
	tier   ranking.Tier
}

// partition is what the model keeps of one scope.
type partition struct {
	holds map[key]map[string]hold    // by replica id
	stats map[string]ranking.Replica // by replica id
}

// Model is an index in memory. It forgets nothing by itself: expired holds never
// match, but they count for the serving set and the census until Sweep.
// Its methods never return an error.
type Model struct {
	mu         sync.Mutex
	nowMS      func() int64
	partitions map[ranking.Scope]*partition
}

// New returns an empty Model with the given clock, Unix ms.
func New(nowMS func() int64) *Model {
	return &Model{nowMS: nowMS, partitions: map[ranking.Scope]*partition{}}
}

func (m *Model) partition(s ranking.Scope) *partition {
	p := m.partitions[s]
	if p == nil {
		p = &partition{holds: map[key]map[string]hold{}, stats: map[string]ranking.Replica{}}
		m.partitions[s] = p
	}
	return p
}

// at is when something happened: 0 is now, and nothing happens later than now.
func (m *Model) at(ms int64) int64 {
	now := m.nowMS()
	if ms == 0 || ms > now {
		return now
	}
	return ms
}

// Report adds what replicas hold; a later entry overwrites an earlier one.
func (m *Model) Report(_ context.Context, rs ...*ranking.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range rs {
		m.report(r)
	}
	return nil
}

func (m *Model) report(r *ranking.Report) {
	p, at := m.partition(r.Scope), m.at(r.SeenMS)
	if r.Scheme != "" {
		for _, e := range r.Entries {
			k := key{ranking.Space{Scheme: r.Scheme, Adapter: e.Adapter}, string(e.Hash)}
			if p.holds[k] == nil {
				p.holds[k] = map[string]hold{}
			}
			p.holds[k][r.Replica] = hold{tokens: e.Tokens, seenMS: at, tier: e.Tier}
		}
	}
	if r.Stats != nil {
		p.stats[r.Replica] = ranking.Replica{
			ID: r.Replica, Stats: *r.Stats, StatsAtMS: at,
			AliveAtMS: max(at, p.stats[r.Replica].AliveAtMS),
		}
	}
}

// Publish applies one change that is not a hold.
func (m *Model) Publish(_ context.Context, e *ranking.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.partition(e.Scope)
	switch e.Kind {
	case ranking.EventEvicted:
		p.drop(func(k key, replica string, _ hold) bool {
			return replica == e.Replica && k.hash == string(e.Hash) && (e.Adapter == "" || k.space.Adapter == e.Adapter)
		})
	case ranking.EventCleared:
		p.drop(func(_ key, replica string, _ hold) bool { return replica == e.Replica })
		delete(p.stats, e.Replica)
	case ranking.EventAlive:
		if s, ok := p.stats[e.Replica]; ok {
			s.AliveAtMS = max(s.AliveAtMS, m.at(e.AtMS))
			p.stats[e.Replica] = s
		}
	}
	return nil
}

// Sweep forgets holds, and stats without a sign of life, of ttlMS and older.
func (m *Model) Sweep(ttlMS int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cutoff := m.nowMS() - ttlMS
	for _, p := range m.partitions {
		p.drop(func(_ key, _ string, h hold) bool { return h.seenMS <= cutoff })
		for id, s := range p.stats {
			if s.AliveAtMS <= cutoff {
				delete(p.stats, id)
			}
		}
	}
}

// drop forgets the holds that gone picks, and keys that nobody holds any more.
func (p *partition) drop(gone func(key, string, hold) bool) {
	for k, holders := range p.holds {
		for replica, h := range holders {
			if gone(k, replica, h) {
				delete(holders, replica)
			}
		}
		if len(holders) == 0 {
			delete(p.holds, k)
		}
	}
}

// State lists the stats of a scope and counts its keys.
func (m *Model) State(_ context.Context, s ranking.Scope) (ranking.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.partition(s)
	state := ranking.State{Prefixes: int64(len(p.holds))}
	for _, r := range p.stats {
		state.Replicas = append(state.Replicas, r)
	}
	slices.SortFunc(state.Replicas, byID)
	return state, nil
}

// Match fills ev with everything that the model knows about q.
func (m *Model) Match(_ context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	*ev = ranking.Evidence{NowMS: m.nowMS(), Asked: len(q.Hashes), Walked: len(q.Hashes)}
	p := m.partition(q.Scope)
	for _, id := range p.serving(q.Scheme) {
		r := p.stats[id]
		r.ID = id
		ev.Serving = append(ev.Serving, r)
	}
	if len(ev.Serving) == 0 {
		ev.Census = m.census(q)
	}
	for i, r := range ev.Serving {
		if run, ok := p.run(q, r.ID, ev.NowMS); ok {
			run.Replica = i
			ev.Runs = append(ev.Runs, run)
		}
	}
	return nil
}

// serving lists, sorted, who holds anything under the scheme.
func (p *partition) serving(scheme string) []string {
	var ids []string
	for k, holders := range p.holds {
		for id := range holders {
			if k.space.Scheme == scheme && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// run is one replica's leading run of the query; false if it has none.
func (p *partition) run(q *ranking.Query, replica string, nowMS int64) (ranking.Run, bool) {
	run := ranking.Run{SeenMS: math.MaxInt64}
	for i, hash := range q.Hashes {
		h, ok := p.holds[key{q.Space, string(hash)}][replica]
		if !ok || nowMS-h.seenMS >= q.TTLMS {
			break
		}
		run.Blocks++
		run.SeenMS = min(run.SeenMS, h.seenMS)
		run.Tier = max(run.Tier, h.tier)
		if q.Exact {
			run.Tokens = int64(h.tokens)
			break
		}
		run.Tokens += int64(q.Tokens[i])
	}
	return run, run.Blocks > 0
}

// census tells where the model stops knowing the query's keys.
func (m *Model) census(q *ranking.Query) ranking.Census {
	anyone, tenant, model := false, false, false
	for scope, p := range m.partitions {
		if len(p.holds) > 0 {
			anyone = true
			tenant = tenant || scope.Tenant == q.Tenant
			model = model || scope == q.Scope
		}
	}
	switch {
	case !anyone:
		return ranking.CensusIndexEmpty
	case !tenant:
		return ranking.CensusTenantEmpty
	case !model:
		return ranking.CensusModelEmpty
	default:
		return ranking.CensusSchemeEmpty
	}
}

func byID(a, b ranking.Replica) int { return strings.Compare(a.ID, b.ID) }
