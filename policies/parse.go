package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"inferencecache.io/lookuptier/ranking"
)

// maxFileBytes bounds one file; a policy document has about a dozen lines.
const maxFileBytes = 1 << 20

// Source is one policy file: YAML with any number of documents.
type Source struct {
	// Name stands in errors; usually the path.
	Name string
	Data []byte
}

// origin is where a namespace got its policy.
type origin struct {
	file string
	line int
}

// parser gathers policies and problems over all sources, so that one run shows
// everything there is to mend.
type parser struct {
	file     string
	problems Problems
	policies map[string]*ranking.Policy
	origins  map[string]origin
	ttls     map[string]origin // where evictionTTL is set, by namespace
	ttlLine  int               // of the document's evictionTTL; 0 = it has none
}

// Parse reads a set. The error is a Problems that lists everything wrong; the
// set is nil then, since half a set would give the other tenants the defaults.
func Parse(sources ...Source) (*Set, error) {
	p := &parser{policies: map[string]*ranking.Policy{}, origins: map[string]origin{}, ttls: map[string]origin{}}
	for _, s := range sources {
		p.source(s)
	}
	if len(p.problems) > 0 {
		return nil, p.problems.sorted()
	}
	set := &Set{byTenant: p.policies, ttls: p.ttls}
	for _, policy := range p.policies {
		set.maxTTL = max(set.maxTTL, policy.EvictionTTL)
	}
	return set, nil
}

// source reads the documents of one file up to its end or a syntax error.
func (p *parser) source(s Source) {
	p.file = s.Name
	if len(s.Data) > maxFileBytes {
		// Nobody has read all of it, so nobody knows how large it is.
		p.add(0, "", "the file is larger than the %d bytes that a policy file may have; split it", maxFileBytes)
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(s.Data))
	for {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			p.syntax(err)
			return
		}
		if len(doc.Content) == 1 && !isNull(doc.Content[0]) {
			p.document(doc.Content[0])
		}
	}
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// syntax reports what the YAML parser said, with its line in the usual place.
func (p *parser) syntax(err error) {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1]) // digits; one too long to parse yields 0, no line
		p.add(line, "", "not YAML: %s", m[2])
		return
	}
	p.add(0, "", "not YAML: %s", err)
}

func (p *parser) add(line int, field, format string, args ...any) {
	p.problems = append(p.problems, Problem{
		File: p.file, Line: line, Field: field, Text: fmt.Sprintf(format, args...),
	})
}
