package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// Standings of a replica in the domain of a lookup.
const (
	standingServes = "serves"
	standingLapsed = "lease_lapsed"
	standingNone   = "no_holds_in_scheme"
)

// Why a run ends.
const (
	lostAbsent  = "absent"
	lostExpired = "expired"
	lostOutside = "end_of_chain"
)

// trace is one replica and the blocks of the lookup, block by block.
type trace struct {
	ReplicaID string `json:"replica_id"`
	Shard     int    `json:"shard"`
	Number    uint32 `json:"number"`
	// Standing is standingServes or why the replica serves nothing here.
	Standing string `json:"standing"`
	// LeaseMS is how long the lease goes on, negative since it lapsed; null without one.
	LeaseMS *int64 `json:"lease_remaining_ms"`
	// Blocks, Tokens, OldestMS and Tier are of the leading run.
	Blocks   int    `json:"run_blocks"`
	Tokens   int64  `json:"run_tokens"`
	OldestMS int64  `json:"run_oldest_age_ms"`
	Tier     string `json:"run_tier"`
	Lost     lost   `json:"lost"`
	// Spans tells all blocks, equal neighbours in one.
	Spans []span `json:"spans"`

	seenMS int64
	tier   ranking.Tier
}

// lost is where and why a run ends.
type lost struct {
	At  int    `json:"block"`
	Why string `json:"why"`
	// AgeMS of the hold that is expired there.
	AgeMS int64 `json:"age_ms,omitempty"`
	// Others freshly hold that block; Retired records of it are of cleared generations.
	Others  int `json:"others_hold_it"`
	Retired int `json:"retired_records"`
	// AgainAt is the next block that the replica freshly holds, -1 if none.
	AgainAt int `json:"held_again_at"`
}

// span is a run of blocks in one state: held, expired or absent.
type span struct {
	From  int    `json:"from"`
	To    int    `json:"to"`
	State string `json:"state"`
}

// shardView is one partition as it stood in one MULTI, looked at with the clock of the
// decision's evidence.
type shardView struct {
	shard    int
	nowMS    int64
	replicas map[string]store.ReplicaRecord
	counted  map[uint32]bool // numbers that count in the lookup's scheme
	schemes  []string        // that the partition has spaces of
	records  [][]ranking.Hold
	garbage  int
}

// readShard reads a partition for the query without a script and without a write.
func (x *explainer) readShard(ctx context.Context, q *ranking.Query, nowMS int64, shard int) (*shardView, error) {
	k := store.KeysOf(q.Scope, shard)
	var replicas, counts, spaces *redis.MapStringStringCmd
	var blocks *redis.SliceCmd
	_, err := x.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		replicas, counts, spaces = tx.HGetAll(ctx, k.Replicas()), tx.HGetAll(ctx, k.Serving()), tx.HGetAll(ctx, k.Spaces())
		fields := make([]string, len(q.Hashes))
		for i, h := range q.Hashes {
			fields[i] = string(h)
		}
		blocks = tx.HMGet(ctx, k.Blocks(store.SpaceSuffix(q.Space)), fields...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading shard %d: %w", shard, err)
	}
	v := &shardView{shard: shard, nowMS: nowMS, replicas: map[string]store.ReplicaRecord{}, counted: map[uint32]bool{}}
	v.readHead(q.Scheme, replicas.Val(), counts.Val(), spaces.Val())
	for _, raw := range blocks.Val() {
		text, _ := raw.(string)
		holds, err := store.DecodeHolds(nil, text)
		if err != nil {
			v.garbage++
		}
		v.records = append(v.records, holds)
	}
	return v, nil
}

func (v *shardView) readHead(scheme string, replicas, counts, spaces map[string]string) {
	for id, raw := range replicas {
		if r, err := store.DecodeReplica(raw); err == nil {
			v.replicas[id] = r
		} else {
			v.garbage++
		}
	}
	index := int64(-1)
	for field, raw := range spaces {
		sp, err := store.ParseSpaceField(field)
		if err != nil {
			v.garbage++
			continue
		}
		if !slices.Contains(v.schemes, sp.Scheme) {
			v.schemes = append(v.schemes, sp.Scheme)
		}
		if n, err := strconv.ParseUint(raw, 10, 16); err == nil && sp.Scheme == scheme {
			index = int64(n)
		}
	}
	for field := range counts {
		if at, number, err := store.ParseCountField(field); err == nil && int64(at) == index {
			v.counted[number] = true
		}
	}
}

// tally adds to fresh the holders of each block that count, and returns how many
// records of it are of generations that are no more.
func (v *shardView) tally(q *ranking.Query, fresh []int) (retired []int) {
	counts := map[uint32]bool{} // numbers of replicas; true = its holds count
	for _, r := range v.replicas {
		counts[r.Number] = v.counted[r.Number] && !r.Lapsed(v.nowMS)
	}
	retired = make([]int, len(v.records))
	for i, holds := range v.records {
		for _, h := range holds {
			switch serves, known := counts[h.Replica]; {
			case !known:
				retired[i]++
			case serves && v.nowMS-h.SeenMS < q.TTLMS:
				fresh[i]++
			}
		}
	}
	return retired
}

// traces tells of every replica of all shards: those that serve first, the longest run
// before others.
func traces(q *ranking.Query, views []*shardView) []trace {
	fresh := make([]int, len(q.Hashes)) // live holders of each block
	retired := make([][]int, len(views))
	for i, v := range views {
		retired[i] = v.tally(q, fresh)
	}
	var out []trace
	for i, v := range views {
		for id, r := range v.replicas {
			out = append(out, v.trace(q, id, &r, fresh, retired[i]))
		}
	}
	slices.SortFunc(out, func(a, b trace) int {
		return cmp.Or(cmp.Compare(rankOf(a.Standing), rankOf(b.Standing)), cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.ReplicaID, b.ReplicaID))
	})
	return out
}

func (v *shardView) trace(q *ranking.Query, id string, r *store.ReplicaRecord, fresh, retired []int) trace {
	t := trace{ReplicaID: id, Shard: v.shard, Number: r.Number, Standing: standingServes, Tier: "-",
		Lost: lost{At: len(v.records), Why: lostOutside, AgainAt: -1}}
	if r.LeaseMS != 0 {
		left := r.LeaseMS - v.nowMS
		t.LeaseMS = &left
	}
	switch {
	case !v.counted[r.Number]:
		t.Standing = standingNone
	case r.Lapsed(v.nowMS):
		t.Standing = standingLapsed
	}
	running := true
	for i, holds := range v.records {
		state, age := lostAbsent, int64(0)
		at := slices.IndexFunc(holds, func(h ranking.Hold) bool { return h.Replica == r.Number })
		if at >= 0 && t.Standing != standingNone {
			h := &holds[at]
			if age = v.nowMS - h.SeenMS; age < q.TTLMS {
				state = "held"
			} else {
				state = lostExpired
			}
			if running && state == "held" {
				t.extend(q, i, h)
			}
		}
		switch {
		case running && state != "held":
			running = false
			t.Lost = lost{At: i, Why: state, AgeMS: age, Others: fresh[i], Retired: retired[i], AgainAt: -1}
		case !running && state == "held" && t.Lost.AgainAt < 0:
			t.Lost.AgainAt = i
		}
		if n := len(t.Spans); n > 0 && t.Spans[n-1].State == state {
			t.Spans[n-1].To = i
		} else {
			t.Spans = append(t.Spans, span{From: i, To: i, State: state})
		}
	}
	if t.Blocks > 0 {
		t.OldestMS, t.Tier = v.nowMS-t.seenMS, tierText(t.tier)
	}
	return t
}

// extend adds a held block to the leading run.
func (t *trace) extend(q *ranking.Query, i int, h *ranking.Hold) {
	if t.Blocks == 0 {
		t.seenMS = h.SeenMS
	}
	t.Blocks++
	t.seenMS, t.tier = min(t.seenMS, h.SeenMS), max(t.tier, h.Tier)
	if q.Exact {
		t.Tokens = int64(h.Tokens)
	} else {
		t.Tokens += int64(q.Tokens[i])
	}
}

func tierText(t ranking.Tier) string {
	if t == ranking.TierUnknown || t == ranking.TierNone {
		return "-"
	}
	return "T" + strconv.Itoa(int(t))
}

// observed is everything that the shards told.
type observed struct {
	traces  []trace
	schemes []string
	garbage int
	// elsewhere is filled when nothing matched.
	elsewhere []place
	// steady: the traces tell the runs that the decision was made on.
	steady bool
}

// observe reads all shards and holds the traces against the decision's evidence.
func (x *explainer) observe(ctx context.Context, d *decision) (*observed, error) {
	o := &observed{}
	views := make([]*shardView, x.shards)
	for shard := range views {
		v, err := x.readShard(ctx, &d.query, d.ev.NowMS, shard)
		if err != nil {
			return nil, err
		}
		views[shard] = v
		o.garbage += v.garbage
		for _, s := range v.schemes {
			if !slices.Contains(o.schemes, s) {
				o.schemes = append(o.schemes, s)
			}
		}
	}
	o.traces = traces(&d.query, views)
	slices.Sort(o.schemes)
	o.steady = o.agrees(&d.ev)
	return o, nil
}

func rankOf(standing string) int {
	return slices.Index([]string{standingServes, standingLapsed, standingNone}, standing)
}

// agrees tells whether the traces have the evidence's serving set and runs.
func (o *observed) agrees(ev *ranking.Evidence) bool {
	runs := map[string]ranking.Run{}
	for _, r := range ev.Runs {
		runs[ev.Serving[r.Replica].ID] = r
	}
	serving := 0
	for _, t := range o.traces {
		if t.Standing != standingServes {
			continue
		}
		serving++
		r := runs[t.ReplicaID]
		if r.Blocks != t.Blocks || r.Tokens != t.Tokens || t.Blocks > 0 && (r.SeenMS != t.seenMS || r.Tier != t.tier) {
			return false
		}
	}
	return serving == len(ev.Serving)
}
