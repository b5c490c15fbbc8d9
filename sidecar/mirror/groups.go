package mirror

import (
	"strings"

	"inferencecache.io/lookuptier/sidecar/events"
)

type groupUse uint8

const (
	groupUnseen groupUse = iota
	// groupFull: its blocks mean that the prefix is reusable.
	groupFull
	// groupOther: sliding window, state space and the like.
	groupOther
	// groupUndeclared: the engine numbers its groups and does not say what they are for.
	groupUndeclared
)

// groups remembers what the engine said of its cache groups, since a removal
// names a group only by its number.
type groups struct {
	use        map[int]groupUse
	undeclared int
}

// fullKinds are the kinds of attention that need every block from the first on.
var fullKinds = map[string]bool{
	"fullattention": true, "full": true, "mlaattention": true, "mla": true,
	"sinkfullattention": true, "tqfullattention": true,
}

func kindOf(e *events.Event) groupUse {
	if e.SpecKind != "" {
		kind := strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(e.SpecKind))
		if fullKinds[strings.TrimSuffix(kind, "spec")] {
			return groupFull
		}
		return groupOther
	}
	if e.SlidingWindow > 0 {
		return groupOther
	}
	if e.Group == events.NoGroup {
		return groupFull
	}
	return groupUndeclared
}

// learn takes what a stored event says of its group. ambiguous is true when it made
// the engine one with several undeclared groups: from then on none of them can be used.
func (g *groups) learn(e *events.Event) (use groupUse, ambiguous bool) {
	use = kindOf(e)
	if e.Group == events.NoGroup {
		return use, false
	}
	if g.use == nil {
		g.use = make(map[int]groupUse)
	}
	before := g.use[e.Group]
	if use == groupUndeclared && before != groupUnseen {
		return before, false
	}
	g.use[e.Group] = use
	if before != groupUndeclared && use == groupUndeclared {
		g.undeclared++
		return use, g.undeclared == 2
	}
	if before == groupUndeclared && use != groupUndeclared {
		g.undeclared--
	}
	return use, false
}

// usable tells whether a removal in this group concerns what is mirrored. A group that
// was never stored to has nothing here.
func (g *groups) usable(group int) bool {
	if group == events.NoGroup || len(g.use) == 0 {
		return true
	}
	use := g.use[group]
	return use == groupFull || use == groupUndeclared
}
