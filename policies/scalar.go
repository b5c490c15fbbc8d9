package policies

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxShownBytes is how much of a wrong value an error repeats.
const maxShownBytes = 60

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	// The parser makes no alias to an alias; the bound is against one that is
	// built by hand.
	for range 8 {
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// text is the value of a string; false for anything else, such as an unquoted number.
func text(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return "", false
	}
	return n.Value, true
}

// whole is the value of an integer in plain digits from 0 to limit.
func whole(n *yaml.Node, limit int64) (int64, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		return 0, false
	}
	if len(n.Value) > 1 && n.Value[0] == '0' {
		return 0, false // octal or hexadecimal to some readers, decimal to others
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	return v, err == nil && v >= 0 && v <= limit
}

// truth is the value of a boolean.
func truth(n *yaml.Node) (value, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		return false, false
	}
	err := n.Decode(&value)
	return value, err == nil
}

// shown is a value as an error repeats it, with what it is when that is the mistake.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "empty"
		case "!!bool":
			return clip(n.Value)
		case "!!int", "!!float":
			return "the number " + clip(n.Value)
		default:
			return strconv.Quote(clip(n.Value))
		}
	default:
		return "no value"
	}
}

// shownKey is a field name as an error repeats it.
func shownKey(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return shown(n)
	}
	return strconv.Quote(clip(n.Value))
}

func clip(s string) string {
	if len(s) <= maxShownBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxShownBytes], "") + "…"
}
