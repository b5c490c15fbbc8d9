package doctor

import (
	"fmt"
	"time"
)

// checkPartitions looks at what can be read at all, and at what there is.
func checkPartitions(f *Facts, out *findings) {
	if f.Index == nil {
		return
	}
	var garbage, broken []string
	blocks := int64(0)
	garbage = append(garbage, f.Index.Catalog.Garbage...)
	for i := range f.Index.Partitions {
		p := &f.Index.Partitions[i]
		garbage = append(garbage, p.Garbage...)
		if p.Err != nil {
			broken = append(broken, fmt.Sprintf("%s: %v", p.Partition, p.Err))
		}
		for _, sp := range p.Spaces {
			blocks += sp.Blocks
		}
	}
	if len(broken) > 0 {
		out.add(Fail, "index.read", "", count(len(broken), "partition")+" cannot be read: lookups there get NO_HINT", "See the errors: a node that is gone, or a user without rights on the keys.", broken...)
	}
	if len(garbage) > 0 {
		out.add(Warn, "index.garbage", "", count(len(garbage), "value")+" cannot be read and count as held by nobody", "Another program writes to our keys, or Redis lost part of them: find it, or give the tier a database of its own. Writes and sweeps replace unreadable values of the right type; a key of the wrong type must be deleted by hand.", garbage...)
	}
	switch {
	case len(f.Index.Partitions) == 0 && f.Index.Layout.Present && len(broken) == 0 && f.Index.Catalog.Total == 0:
		out.add(Warn, "index.empty", "", "the index holds nothing for anyone: every lookup is NO_HINT", "Check that sidecars run and write to this Redis (their /readyz and kvsidecar_redis_away), or that producers report over gRPC. After a flush or restart they fill it by themselves.")
	case len(f.Index.Partitions) > 0 && len(garbage)+len(broken) == 0:
		out.ok("index.read", "", "%s with %d prefix keys can be read", count(len(f.Index.Partitions), "partition"), blocks)
	}
}

// sweepsBehind is how many sweep intervals without a full pass are too many.
const sweepsBehind = 3

func checkSweeper(f *Facts, out *findings) {
	if f.Index == nil || f.Index.NowMS == 0 || len(f.Index.Partitions) == 0 {
		return
	}
	const check = "sweeper"
	limit := sweepsBehind * f.SweepInterval
	var behind []string
	dirty := 0
	for i := range f.Index.Partitions {
		p := &f.Index.Partitions[i]
		if p.Err != nil {
			continue
		}
		note := ""
		if p.Dirty {
			note = "; records of cleared replicas wait in it"
		}
		since := p.SweptMS
		if since == 0 {
			since = p.LogFirstMS // it exists at least that long
		}
		age := time.Duration(f.Index.NowMS-since) * time.Millisecond
		if since == 0 || age <= limit {
			if p.Dirty {
				dirty++
			}
			continue
		}
		if p.SweptMS == 0 {
			behind = append(behind, fmt.Sprintf("%s: never swept, written to %s ago%s", p.Partition, ageText(age), note))
		} else {
			behind = append(behind, fmt.Sprintf("%s: last swept %s ago%s", p.Partition, ageText(age), note))
		}
	}
	switch {
	case len(behind) == len(f.Index.Partitions):
		out.add(Warn, check, "", "nobody sweeps: no partition had a full pass within "+ageText(limit), "Sweepers run in lookup pods: check that at least one is ready and uses this Redis. Lookups stay right; memory of Redis grows.", behind...)
	case len(behind) > 0:
		out.add(Warn, check, "", fmt.Sprintf("%d of %s had no full pass within %s", len(behind), count(len(f.Index.Partitions), "partition"), ageText(limit)), "Redis is slow or pods are too few: see sweep_pass_seconds. If --sweep-interval is longer than a minute, tell doctor with --sweep-interval.", behind...)
	default:
		text := "every partition was swept within " + ageText(limit)
		if dirty > 0 {
			text += fmt.Sprintf("; %d wait for the next pass after a clear", dirty)
		}
		out.ok(check, "", "%s", text)
	}
}
