package main

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"inferencecache.io/lookuptier/doctor"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// Bounds of the search for a block under other names.
const (
	elsewherePartitions = 256
	elsewhereSpaces     = 2048
	elsewhereShown      = 8
)

// place is a domain other than the lookup's own.
type place struct {
	Tenant  string `json:"tenant_id"`
	Model   string `json:"model_id"`
	Scheme  string `json:"hash_scheme"`
	Adapter string `json:"adapter_id"`
	// Has: the lookup's first block (or its exact hash) stands there.
	Has bool `json:"has_first_block"`
	// Alike: its names differ from the lookup's by case, space or punctuation only.
	Alike bool `json:"names_alike"`
}

// elsewhere looks for the first block under other names, since a name that gateway and
// sidecars disagree about is the usual cause of a lookup that finds nothing. It returns
// places that have the block, or else those whose names are alike.
func (x *explainer) elsewhere(ctx context.Context, q *ranking.Query) ([]place, error) {
	list, err := doctor.ListPartitions(ctx, x.rdb, elsewherePartitions)
	if err != nil {
		return nil, err
	}
	spaces := make([]*redis.StringSliceCmd, len(list.Partitions))
	if len(spaces) == 0 {
		return nil, nil
	}
	if _, err := x.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, part := range list.Partitions {
			spaces[i] = p.HKeys(ctx, part.Keys().Spaces())
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var places []place
	var has []*redis.SliceCmd
	if _, err := x.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, part := range list.Partitions {
			for _, field := range spaces[i].Val() {
				sp, err := store.ParseSpaceField(field)
				if err != nil || part.Scope == q.Scope && sp == q.Space || len(places) >= elsewhereSpaces {
					continue
				}
				at := place{Tenant: part.Tenant, Model: part.Model, Scheme: sp.Scheme, Adapter: sp.Adapter}
				at.Alike = alike(q, &at)
				places = append(places, at)
				first := ""
				if len(q.Hashes) > 0 {
					first = string(q.Hashes[0])
				}
				has = append(has, p.HMGet(ctx, part.Keys().Blocks(store.SpaceSuffix(sp)), first))
			}
		}
		return nil
	}); err != nil && len(places) > 0 {
		return nil, err
	}
	for i := range places {
		places[i].Has = len(q.Hashes) > 0 && len(q.Hashes[0]) > 0 && len(has[i].Val()) == 1 && has[i].Val()[0] != nil
	}
	return shortlist(places), nil
}

func shortlist(places []place) []place {
	pick := func(want func(*place) bool) (out []place) {
		for _, p := range places {
			if want(&p) && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
		return out[:min(len(out), elsewhereShown)]
	}
	if with := pick(func(p *place) bool { return p.Has }); len(with) > 0 {
		return with
	}
	return pick(func(p *place) bool { return p.Alike })
}

// alike tells whether a place is the lookup's own but for the spelling of its names.
func alike(q *ranking.Query, p *place) bool {
	same := func(a, b string) bool { return doctor.Spelling(a) == doctor.Spelling(b) }
	schemes := same(q.Scheme, p.Scheme) || q.Scheme != "" && p.Scheme != "" &&
		(strings.HasPrefix(q.Scheme, p.Scheme) || strings.HasPrefix(p.Scheme, q.Scheme))
	return same(q.Tenant, p.Tenant) && same(q.Model, p.Model) && schemes
}
