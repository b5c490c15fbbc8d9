package doctor

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestMain(m *testing.M) {
	// The client of a Cluster that lost a node goes on trying to dial it for a second after its Close.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// generous is for anything that must happen, on a busy machine.
const generous = time.Minute

var scope = ranking.Scope{Tenant: "demo", Model: "llama"}

// index is a real index that tests fill.
type index struct {
	t *testing.T
	*store.Store
	rdb redis.UniversalClient
}

func openIndex(t *testing.T, rdb redis.UniversalClient, shards int) *index {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Redis: rdb, Shards: shards})
	require.NoError(t, err)
	return &index{t, s, rdb}
}

// holds makes a replica hold n blocks of the scheme, of block tokens each.
func (x *index) holds(sc ranking.Scope, scheme, replica string, n, block int, stats *ranking.Stats) {
	x.t.Helper()
	r := &ranking.Report{Scope: sc, Replica: replica, Scheme: scheme, Stats: stats}
	for i := range n {
		r.Entries = append(r.Entries, ranking.Entry{Hash: []byte{byte(block), byte(i >> 8), byte(i)}, Tokens: int32((i + 1) * block), Tier: ranking.TierT1})
	}
	require.NoError(x.t, x.Report(x.t.Context(), r))
}

// examine examines the index and nothing else, unless told so.
func (x *index) examine(more ...func(*Options)) *Report {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), generous)
	defer cancel()
	o := Options{Redis: x.rdb, RedisName: "redis"}
	for _, f := range more {
		f(&o)
	}
	r, err := Examine(ctx, o)
	require.NoError(x.t, err)
	return r
}

// find returns the worst finding of a check.
func find(t *testing.T, r *Report, check string) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no finding %s in %+v", check, r.Findings)
	return Finding{}
}

// troubles lists the checks that did not pass.
func troubles(r *Report) (out []string) {
	for _, f := range r.Findings {
		if f.Severity != OK {
			out = append(out, string(f.Severity)+" "+f.Check)
		}
	}
	return out
}
