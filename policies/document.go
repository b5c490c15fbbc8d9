package policies

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"inferencecache.io/lookuptier/ranking"
)

const (
	// APIVersion of the documents that this package reads.
	APIVersion = "inferencecache.io/v1alpha1"
	// Kind of the documents that this package reads.
	Kind = "CachePolicy"
)

// maxNamespaceBytes is the longest tenant name that the index takes.
const maxNamespaceBytes = 512

// document reads one CachePolicy and enters it under its namespace.
func (p *parser) document(root *yaml.Node) {
	before := len(p.problems)
	doc, ok := p.mapping(root, "", "apiVersion", "kind", "metadata", "spec")
	if !ok {
		return
	}
	p.constant(doc, "apiVersion", APIVersion)
	p.constant(doc, "kind", Kind)
	namespace, line := p.namespace(doc)
	policy := ranking.DefaultPolicy()
	p.ttlLine = 0
	p.spec(doc, &policy)
	if namespace == "" {
		return
	}
	if first, twice := p.origins[namespace]; twice {
		p.add(line, "metadata.namespace", "%q has a policy already, at %s:%d; a namespace can have one, so remove one of them",
			namespace, first.file, first.line)
		return
	}
	p.origins[namespace] = origin{p.file, line}
	if len(p.problems) == before {
		p.policies[namespace] = &policy
		p.ttls[namespace] = origin{p.file, p.ttlLine}
	}
}

// constant checks a field that has one allowed value.
func (p *parser) constant(m *mapping, name, want string) {
	v, ok := m.fields[name]
	if !ok {
		p.add(m.line, name, "is missing; write %q", want)
		return
	}
	if got, ok := text(v.node); !ok || got != want {
		p.add(v.line, name, "is %s; it must be %q", shown(v.node), want)
	}
}

// namespace reads metadata; the namespace is the tenant. "" if there is none to use.
func (p *parser) namespace(doc *mapping) (string, int) {
	const hint = "write the tenant that the policy is for"
	v, ok := doc.fields["metadata"]
	if !ok {
		p.add(doc.line, "metadata.namespace", "is missing; %s", hint)
		return "", 0
	}
	meta, ok := p.mapping(v.node, "metadata", "name", "namespace", "labels", "annotations")
	if !ok {
		return "", 0
	}
	if name, ok := meta.fields["name"]; ok {
		if s, ok := text(name.node); !ok || s == "" {
			p.add(name.line, "metadata.name", "is %s; it must be a string, or left out", shown(name.node))
		}
	}
	ns, ok := meta.fields["namespace"]
	if !ok {
		p.add(v.line, "metadata.namespace", "is missing; %s", hint)
		return "", 0
	}
	s, ok := text(ns.node)
	switch {
	case !ok || s == "":
		p.add(ns.line, "metadata.namespace", "is %s; %s, as a string", shown(ns.node), hint)
		return "", 0
	case len(s) > maxNamespaceBytes:
		p.add(ns.line, "metadata.namespace", "has %d bytes; it may have at most %d", len(s), maxNamespaceBytes)
		return "", 0
	}
	return s, ns.line
}

// mapping is a YAML mapping by field name.
type mapping struct {
	line   int
	fields map[string]value
}

// value is the value of a field; line is where the field stands.
type value struct {
	line int
	node *yaml.Node
}

// mapping reads the node under path as a mapping with no other fields than the
// allowed ones. An empty node is an empty mapping.
func (p *parser) mapping(n *yaml.Node, path string, allowed ...string) (*mapping, bool) {
	n = resolve(n)
	m := &mapping{line: n.Line, fields: map[string]value{}}
	if isNull(n) {
		return m, true
	}
	if n.Kind != yaml.MappingNode {
		p.add(n.Line, path, "is %s; it must be a mapping with the fields %s", shown(n), strings.Join(allowed, ", "))
		return nil, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		name, ok := text(key)
		if !ok || !slices.Contains(allowed, name) {
			p.add(key.Line, join(path, shownKey(key)), "is no field of %s; the fields are %s",
				place(path), strings.Join(allowed, ", "))
			continue
		}
		if first, twice := m.fields[name]; twice {
			p.add(key.Line, join(path, name), "stands twice, first at line %d; remove one", first.line)
			continue
		}
		m.fields[name] = value{line: key.Line, node: resolve(n.Content[i+1])}
	}
	return m, true
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func place(path string) string {
	if path == "" {
		return "a " + Kind
	}
	return path
}
