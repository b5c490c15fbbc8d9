package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// checkNames looks for one name written in two ways, and for names with stray spaces.
func checkNames(f *Facts, out *findings) {
	models := f.models()
	if len(models) == 0 {
		return
	}
	const check = "names"
	before := len(*out)
	tenants := map[string]bool{}
	byTenant := map[string][]string{}
	var odd []string
	note := func(kind, name string) {
		if strings.TrimFunc(name, unicode.IsSpace) != name {
			odd = append(odd, fmt.Sprintf("%s %q", kind, name))
		}
	}
	for _, m := range models {
		tenants[m.Tenant] = true
		byTenant[m.Tenant] = append(byTenant[m.Tenant], m.Model)
		note("model", m.Model)
		for _, s := range m.schemes {
			note("hash scheme", s)
		}
		var ids []string
		for i := range m.replicas {
			ids = append(ids, m.replicas[i].id)
			note("replica", m.replicas[i].id)
		}
		if twins := alikeNames(ids); len(twins) > 0 {
			out.add(Warn, check, m.String(), "replicas whose names differ by case or space only: one engine may be counted twice", "Give each sidecar one --replica-id, spelt as the gateway spells it.", twins...)
		}
		if placed := doublyPlaced(m); len(placed) > 0 {
			out.add(Fail, check, m.String(), "replicas stand in several shards at once", "Components write with different numbers of shards: see layout.", placed...)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		note("tenant", tenant)
		if twins := alikeNames(byTenant[tenant]); len(twins) > 0 {
			out.add(Warn, check, fmt.Sprintf("tenant %q", tenant), "models whose names differ by case or space only: lookups under one see nothing of the other", "Give all sidecars one --model-id, and gateways the same.", twins...)
		}
	}
	if twins := alikeNames(slices.Collect(maps.Keys(tenants))); len(twins) > 0 {
		out.add(Warn, check, "", "tenants whose names differ by case or space only: lookups under one see nothing of the other", "Give all sidecars one --tenant-id, the namespace of the CachePolicy, and gateways the same.", twins...)
	}
	if len(odd) > 0 {
		out.add(Warn, check, "", "names that begin or end with white space", "Look for a trailing newline in the environment variable or Secret that the name comes from.", odd...)
	}
	if len(*out) == before {
		out.ok(check, "", "no two names look like one")
	}
}

// alikeNames lists groups of different names with one spelling.
func alikeNames(names []string) (groups []string) {
	bySpelling := map[string][]string{}
	for _, n := range names {
		if s := Spelling(n); !slices.Contains(bySpelling[s], n) {
			bySpelling[s] = append(bySpelling[s], n)
		}
	}
	for _, same := range bySpelling {
		if len(same) > 1 {
			groups = append(groups, quoted(same))
		}
	}
	slices.Sort(groups)
	return groups
}

func doublyPlaced(m *model) (out []string) {
	for i := 1; i < len(m.replicas); i++ {
		if a, b := &m.replicas[i-1], &m.replicas[i]; a.id == b.id {
			out = append(out, fmt.Sprintf("%q in shards %d and %d", a.id, a.shard, b.shard))
		}
	}
	return out
}
