package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
	"inferencecache.io/lookuptier/store"
)

// finding is what a lookup says, in a form that two indexes can be compared by.
type finding struct {
	Serving []string
	Runs    map[string]ranking.Run
	Census  ranking.Census
}

func findingOf(ev *ranking.Evidence) finding {
	f := finding{Runs: map[string]ranking.Run{}, Census: ev.Census}
	for _, r := range ev.Serving {
		f.Serving = append(f.Serving, r.ID)
	}
	for _, r := range ev.Runs {
		id := ev.Serving[r.Replica].ID
		r.Replica = 0
		f.Runs[id] = r
	}
	return f
}

// of is what is said of one replica.
func (f finding) of(id string) finding {
	one := finding{Runs: map[string]ranking.Run{}}
	if slices.Contains(f.Serving, id) {
		one.Serving = []string{id}
	}
	if run, ok := f.Runs[id]; ok {
		one.Runs[id] = run
	}
	return one
}

// Writes through several pods, lookups on all of them, trimmed logs and broken
// connections in any order: the pod that wrote last answers as the slow model does;
// every other pod answers as the model did at some step; and once things are quiet
// all pods agree with it.
func TestEveryPodAnswersAsTheModelDidAtSomeStep(t *testing.T) {
	for _, shards := range []int{1, 4} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("redis/shards=%d/seed=%d", shards, seed), func(t *testing.T) {
				t.Parallel()
				playModel(t, urlOf(rig.Standalone(t).Addr()), shards, seed, 150)
			})
		}
		t.Run(fmt.Sprintf("cluster/shards=%d", shards), func(t *testing.T) {
			t.Parallel()
			playModel(t, rig.Cluster(t, 3).URL(), shards, 9, 80)
		})
	}
}

func playModel(t *testing.T, url string, shards int, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, uint64(shards)))
	pods := []*pod{
		newPod(t, url, shards, store.CachedOptions{}),
		newPod(t, url, shards, store.CachedOptions{Bytes: 1 << 20}),
		newPod(t, url, shards, store.CachedOptions{MaxPartitions: 2}),
	}
	model := rankingtest.New(func() int64 { return time.Now().UnixMilli() })
	base := time.Now().UnixMilli()
	spaces := []ranking.Space{{Scheme: "vllm"}, {Scheme: "vllm", Adapter: "lora"}, {Scheme: "sglang"}}
	hash := func(chain, i int) []byte {
		if i < 3 {
			chain = 0 // all chains begin alike
		}
		return []byte(fmt.Sprintf("%d/%d", chain, i))
	}
	var queries []*ranking.Query
	for _, sp := range spaces {
		for chain := range 4 {
			q := &ranking.Query{Scope: scope, Space: sp, TTLMS: halfHour}
			for i := range 3 + 3*chain {
				q.Hashes, q.Tokens = append(q.Hashes, hash(chain, i)), append(q.Tokens, int32(10+i))
			}
			queries = append(queries, q)
		}
		queries = append(queries, &ranking.Query{Scope: scope, Space: sp, TTLMS: halfHour, Exact: true, Hashes: [][]byte{hash(0, 1)}})
	}
	ask := func(index interface {
		Match(context.Context, *ranking.Query, *ranking.Evidence) error
	}, q *ranking.Query) finding {
		ev := new(ranking.Evidence)
		require.NoError(t, index.Match(ctx, q, ev))
		return findingOf(ev)
	}
	history := make([][]finding, len(queries))
	note := func() {
		for i, q := range queries {
			history[i] = append(history[i], ask(model, q))
		}
	}
	note()
	for step := range steps {
		by := pods[r.IntN(len(pods))]
		wrote := true
		replica := fmt.Sprintf("engine-%d", r.IntN(6))
		switch r.IntN(10) {
		case 0, 1, 2, 3, 4:
			sp, chain := spaces[r.IntN(len(spaces))], r.IntN(4)
			rep := &ranking.Report{Scope: scope, Replica: replica, Scheme: sp.Scheme, SeenMS: base - int64(r.IntN(5))*600_000 - 60_000}
			from := r.IntN(4) * r.IntN(2)
			for i := from; i <= from+r.IntN(10); i++ {
				rep.Entries = append(rep.Entries, ranking.Entry{
					Adapter: sp.Adapter, Hash: hash(chain, i), Tokens: int32(16 * i), Tier: ranking.Tier(1 + r.IntN(3)),
				})
			}
			require.NoError(t, by.Report(ctx, rep))
			require.NoError(t, model.Report(ctx, rep))
		case 5, 6:
			e := &ranking.Event{Kind: ranking.EventEvicted, Scope: scope, Replica: replica, Hash: hash(r.IntN(4), r.IntN(8))}
			if r.IntN(3) == 0 {
				e.Adapter = "lora"
			}
			require.NoError(t, by.Publish(ctx, e))
			require.NoError(t, model.Publish(ctx, e))
		case 7:
			e := &ranking.Event{Kind: ranking.EventCleared, Scope: scope, Replica: replica}
			require.NoError(t, by.Publish(ctx, e))
			require.NoError(t, model.Publish(ctx, e))
		case 8:
			wrote = false
			log := store.KeysOf(scope, r.IntN(shards)).Log()
			require.NoError(t, by.rdb.XTrimMaxLen(ctx, log, int64(r.IntN(2))).Err())
		case 9:
			wrote = false
			// Followers break off; the commands of this test are sent again.
			_ = by.rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
		}
		note()
		for range 4 {
			i := r.IntN(len(queries))
			if wrote {
				// Of other shards the writer has not heard yet what others wrote there.
				want, got := history[i][len(history[i])-1], ask(by, queries[i])
				if shards > 1 {
					want, got = want.of(replica), got.of(replica)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("step %d: the writer's own lookup %d (-model +pod):\n%s", step, i, diff)
				}
			}
			other := pods[r.IntN(len(pods))]
			i = r.IntN(len(queries))
			got, ok := ask(other, queries[i]), false
			for _, was := range history[i] {
				ok = ok || cmp.Equal(was, got)
			}
			// Shards are read one by one, so with several the parts of an answer may be of two steps.
			if !ok && shards == 1 {
				t.Fatalf("step %d: no step of the model gives %+v", step, got)
			}
		}
	}
	for _, p := range pods {
		for i, q := range queries {
			rig.Eventually(t, longEnough, "agreement", func() error {
				if diff := cmp.Diff(history[i][len(history[i])-1], ask(p, q)); diff != "" {
					return fmt.Errorf("query %d (-model +pod):\n%s", i, diff)
				}
				return nil
			})
		}
	}
}
