package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// model is one (tenant, model) over all its shards.
type model struct {
	ranking.Scope
	parts    []*PartitionFacts
	replicas []producer // sorted by id
	schemes  []string   // with spaces, sorted
}

// producer is one replica of a model.
type producer struct {
	id    string
	shard int
	store.ReplicaRecord
	// holds by scheme, as counted.
	holds map[string]int64
	// newestMS is the youngest hold among the samples; 0 = none was met.
	newestMS int64
	lapsed   bool
}

func (p *producer) total() (n int64) {
	for _, h := range p.holds {
		n += h
	}
	return n
}

func (m *model) String() string { return fmt.Sprintf("tenant %q model %q", m.Tenant, m.Model) }

// models joins the shards of each scope, in order.
func (f *Facts) models() []*model {
	if f.Index == nil {
		return nil
	}
	var list []*model
	for i := range f.Index.Partitions {
		p := &f.Index.Partitions[i]
		if p.Err != nil {
			continue
		}
		if n := len(list); n == 0 || list[n-1].Scope != p.Scope {
			list = append(list, &model{Scope: p.Scope})
		}
		m := list[len(list)-1]
		m.parts = append(m.parts, p)
		m.join(p, f.Index.NowMS)
	}
	for _, m := range list {
		slices.SortFunc(m.replicas, func(a, b producer) int {
			return cmp.Or(strings.Compare(a.id, b.id), cmp.Compare(a.shard, b.shard))
		})
		slices.Sort(m.schemes)
		m.schemes = slices.Compact(m.schemes)
	}
	return list
}

func (m *model) join(p *PartitionFacts, nowMS int64) {
	schemes := map[uint16]string{}
	newest := map[uint32]int64{}
	for _, sp := range p.Spaces {
		schemes[sp.Index] = sp.Scheme
		for _, holds := range sp.Samples {
			for _, h := range holds {
				newest[h.Replica] = max(newest[h.Replica], h.SeenMS)
			}
		}
	}
	holds := map[uint32]map[string]int64{}
	for _, c := range p.Counts {
		if holds[c.Number] == nil {
			holds[c.Number] = map[string]int64{}
		}
		holds[c.Number][schemes[c.Scheme]] += c.Holds
		m.schemes = append(m.schemes, schemes[c.Scheme])
	}
	for id, rec := range p.Replicas {
		m.replicas = append(m.replicas, producer{
			id: id, shard: p.Shard, ReplicaRecord: rec, holds: holds[rec.Number], newestMS: newest[rec.Number], lapsed: rec.Lapsed(nowMS),
		})
	}
}
