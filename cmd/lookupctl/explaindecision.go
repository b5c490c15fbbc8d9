package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// explainer decides one lookup as a pod would, and watches itself doing so.
type explainer struct {
	rdb       redis.UniversalClient
	index     *store.Store
	shards    int
	req       *pb.LookupRouteRequest
	policy    ranking.Policy
	origin    string // where the policy comes from
	knobs     ranking.Knobs
	blockSize int
	timeout   time.Duration // the pod's, for the record
	within    time.Duration // for the explanation itself
}

func (x *explainer) setPolicy(set *policies.Set, dir string) {
	tenant := x.req.GetTenantId()
	x.policy, x.origin = *set.For(tenant), "the default: no --policy-dir is given"
	switch {
	case dir != "" && slices.Contains(set.Tenants(), tenant):
		x.origin = "the tenant's CachePolicy"
	case dir != "":
		x.origin = "the default: no CachePolicy has namespace " + cell(tenant)
	}
}

// witness is the index of the service that decides; it keeps what was asked and found.
type witness struct {
	*store.Store
	mu    sync.Mutex
	asked bool
	query ranking.Query
	ev    ranking.Evidence
	took  time.Duration
	err   error
}

// Match implements lookupsvc.Index.
func (w *witness) Match(ctx context.Context, q *ranking.Query, ev *ranking.Evidence) error {
	start := time.Now()
	err := w.Store.Match(ctx, q, ev)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.took, w.err = true, time.Since(start), err
	// The service uses query and evidence again.
	w.query = *q
	w.query.Hashes = make([][]byte, len(q.Hashes))
	for i, h := range q.Hashes {
		w.query.Hashes[i] = slices.Clone(h)
	}
	w.query.Tokens = slices.Clone(q.Tokens)
	w.ev = *ev
	w.ev.Runs = slices.Clone(ev.Runs)
	return err
}

// decision is what the service said and saw.
type decision struct {
	reply    *pb.LookupRouteResponse
	source   string // of the prompt, as the metric names it
	rejected string // reason of lookup_rejected_total, "" = not rejected
	remedy   string // beside rejected
	*witness
}

// decide lets the service of a lookup pod answer, with time enough for an operator's
// connection: the budget is a matter of the pod's own.
func (x *explainer) decide(ctx context.Context) (*decision, error) {
	d := &decision{witness: &witness{Store: x.index}}
	remedies := &remedyLog{}
	registry := prometheus.NewRegistry()
	unhurried := x.policy
	unhurried.LookupTimeout = 0
	service, err := lookupsvc.New(lookupsvc.Options{
		Index: d.witness, Policy: func(string) *ranking.Policy { return &unhurried }, Knobs: x.knobs,
		BlockSize: x.blockSize, LookupTimeout: x.within, Metrics: registry, Log: slog.New(remedies),
	})
	if err != nil {
		return nil, err
	}
	if d.reply, err = service.LookupRoute(ctx, x.req); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading the index: %w; give it longer with --timeout", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	d.remedy = remedies.text()
	d.source = countedLabel(registry, "inferencecache_lookup_input_total", "input")
	d.rejected = countedLabel(registry, "inferencecache_lookup_rejected_total", "reason")
	return d, nil
}

// countedLabel is the value of a label whose counter is not 0; of one lookup there is at most one.
func countedLabel(g prometheus.Gatherer, name, label string) string {
	families, err := g.Gather()
	if err != nil {
		return ""
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || m.GetCounter().GetValue() == 0 {
				continue
			}
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					return l.GetValue()
				}
			}
		}
	}
	return ""
}

// remedyLog keeps what the service's log says should be done.
type remedyLog struct {
	mu   sync.Mutex
	last string
}

func (*remedyLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *remedyLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *remedyLog) WithGroup(string) slog.Handler          { return l }

// Handle implements slog.Handler.
func (l *remedyLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "do" {
			l.mu.Lock()
			l.last = a.Value.String()
			l.mu.Unlock()
		}
		return true
	})
	return nil
}

func (l *remedyLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// input is what the service resolved, as far as the index was asked for it.
func (x *explainer) input(d *decision) *ranking.Input {
	in := &ranking.Input{Query: d.query, TTFTMS: x.req.GetSlo().GetTtftMs(), PrefixTokens: int64(max(0, x.req.GetPrefixTokenCount()))}
	if !in.Exact {
		in.PrefixTokens = 0
		for _, n := range in.Tokens {
			in.PrefixTokens += int64(n)
		}
	} else if d.source == "token_ids" {
		in.PrefixTokens = int64(len(x.req.GetTokenIds()) / x.blockSize * x.blockSize)
	}
	return in
}

// errDisagree: the working led elsewhere than the answer. It is a fault of lookupctl.
var errDisagree = errors.New("the explanation does not lead to the service's own answer: please report this with the request")

// explainRanking explains the decision, and holds it against the reply.
func (x *explainer) explainRanking(d *decision, in *ranking.Input) (*ranking.Explanation, []ranking.WhatIf, bool, error) {
	p := x.policy
	for _, contradicts := range []bool{false, true} {
		// A request whose chain fields contradict one another gets no affinity,
		// even where the policy has them ignored.
		p.Affinity = p.Affinity && !contradicts
		e := ranking.Explain(in, &d.ev, &p, &x.knobs)
		if sameAnswer(e, d.reply) {
			return e, ranking.WhatIfs(in, &d.ev, &p, &x.knobs), contradicts, nil
		}
	}
	return nil, nil, false, errDisagree
}

func sameAnswer(e *ranking.Explanation, reply *pb.LookupRouteResponse) bool {
	scores := reply.GetReplicaScores()
	if string(e.Reason) != reply.GetReasonCode() || len(scores) != len(e.Candidates) {
		return false
	}
	for i, c := range e.Candidates {
		r := scores[i]
		if r.GetReplicaId() != c.ReplicaID || r.GetScore() != c.Score || r.GetMatchedTokens() != c.MatchedTokens {
			return false
		}
	}
	return true
}
