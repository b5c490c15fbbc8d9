package main

import (
	"fmt"

	"inferencecache.io/lookuptier/replay"
)

// mostEngines is how many engines are listed one by one.
const mostEngines = 16

func writeReplay(s *session, o *replay.Options, r *replay.Result) error {
	if s.json {
		return writeJSON(s.out, r)
	}
	fmt.Fprintf(s.out, "%s\n\n", wrap(headline(o, r), s.width))
	reuseTable(o, r).write(s.out, s.width)
	fmt.Fprintln(s.out)
	reasonTable(r).write(s.out, s.width)
	fmt.Fprintf(s.out, "\n%s\n\n", wrap(routingText(r), s.width))
	latencyTable(r).write(s.out, s.width)
	fmt.Fprintln(s.out)
	spreadTable(r).write(s.out, s.width)
	if len(r.Engines) <= mostEngines {
		fmt.Fprintln(s.out)
		engineTable(r).write(s.out, s.width)
	}
	return nil
}

func headline(o *replay.Options, r *replay.Result) string {
	requests := plural(r.Requests, "request")
	if r.Requests < r.Total {
		requests = fmt.Sprintf("%s of %s", grouped(int64(r.Requests)), plural(r.Total, "request"))
	}
	return fmt.Sprintf("%s, %s of %s tokens, in %s; %s of %s", requests, plural(int(r.Blocks), "prompt block"),
		grouped(o.BlockTokens), duration(r.Seconds*1e6), plural(o.Engines, "engine"), plural(o.Blocks, "block"))
}

func reuseTable(o *replay.Options, r *replay.Result) *table {
	names := map[string]string{
		replay.PolicyHints:      "with the tier's hints",
		replay.PolicyRoundRobin: "round robin",
		replay.PolicyPooled:     "one shared cache of " + plural(o.Engines*o.Blocks, "block"),
		replay.PolicyUnbounded:  "one unbounded shared cache",
	}
	t := &table{header: []string{"REUSED PROMPT BLOCKS", "BLOCKS", "SHARE"}}
	for _, row := range r.Reuse {
		t.add(names[row.Policy], grouped(row.Reused), percent(row.Share))
	}
	return t
}

func reasonTable(r *replay.Result) *table {
	t := &table{header: []string{"REASON", "LOOKUPS", "SHARE"}}
	for _, row := range r.Reasons {
		t.add(cell(row.Reason), grouped(int64(row.Count)), percent(row.Share))
	}
	return t
}

// routingText says where requests went, and whether the hints told the truth.
func routingText(r *replay.Result) string {
	w := r.Routing
	text := fmt.Sprintf("%s followed the hint, %s went round robin without one, %s to warm the engines up.",
		plural(w.Followed, "request"), grouped(int64(w.RoundRobin)), grouped(int64(w.Warmup)))
	if w.Foreign > 0 {
		text += fmt.Sprintf(" %s named a replica that is none of the engines: something else writes to the same tenant and model.",
			plural(w.Foreign, "hint"))
	}
	if matches := w.Exact + w.Overstated + w.Understated; matches > 0 {
		text += fmt.Sprintf(" Of %s, the engine held exactly what the hint said %s, less %s, more %s.",
			plural(matches, "followed prefix match"), times(w.Exact), times(w.Overstated), times(w.Understated))
	}
	if w.Retries > 0 {
		text += fmt.Sprintf(" %s had to be sent again.", plural(int(w.Retries), "write"))
	}
	if w.LagMS > 0 {
		text += fmt.Sprintf(" The latest request started %s after its time.", duration(w.LagMS*1e3))
	}
	return text
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return grouped(int64(n)) + " times"
}

func latencyTable(r *replay.Result) *table {
	t := &table{header: []string{"LATENCY", "CALLS", "P50", "P90", "P99", "MAX"}}
	for _, row := range []struct {
		name string
		p    replay.Percentiles
	}{
		{"lookup, round trip", r.Latency.Lookup}, {"lookup, in the pod", r.Latency.InPod},
		{"report, round trip", r.Latency.Report}, {"eviction, round trip", r.Latency.Evict},
	} {
		if row.p.Calls == 0 {
			t.add(row.name, "0", "-", "-", "-", "-")
			continue
		}
		t.add(row.name, grouped(int64(row.p.Calls)), duration(row.p.P50), duration(row.p.P90), duration(row.p.P99), duration(row.p.Max))
	}
	return t
}

func spreadTable(r *replay.Result) *table {
	t := &table{header: []string{"SPREAD OVER ENGINES", "MIN", "MEAN", "MAX", "STDDEV"}}
	for _, row := range []struct {
		name string
		d    replay.Distribution
	}{
		{"requests", r.Spread.Requests}, {"prompt blocks", r.Spread.Blocks}, {"blocks computed, not reused", r.Spread.Computed},
	} {
		t.add(row.name, grouped(row.d.Min), rounded(row.d.Mean), grouped(row.d.Max), rounded(row.d.Stddev))
	}
	return t
}

func rounded(f float64) string { return grouped(int64(f + 0.5)) }

func engineTable(r *replay.Result) *table {
	t := &table{header: []string{"ENGINE", "REQUESTS", "BLOCKS", "REUSED", "STORED", "EVICTED", "RESIDENT"}}
	for _, e := range r.Engines {
		t.add(cell(e.ID), grouped(e.Requests), grouped(e.Blocks), grouped(e.Reused), grouped(e.Stored), grouped(e.Evicted), grouped(int64(e.Resident)))
	}
	return t
}
