package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// All in a list of tenants stands for every tenant, those to come included.
	All = "*"
	// MaxTokens bounds a file: each call is compared with all of them.
	MaxTokens = 4096
	// leastToken is how many characters of a token written in clear are the least;
	// 16 random ones are out of reach of guessing.
	leastToken = 16
)

// Holder is who shows a token. It is immutable.
type Holder struct {
	// Name is for logs; it is no secret.
	Name           string
	lookup, report tenants
}

type tenants struct {
	all   bool
	named map[string]bool
}

func (t *tenants) has(tenant string) bool { return t.all || t.named[tenant] }

// Table has the holders of all tokens. It is immutable.
type Table struct {
	digests [][sha256.Size]byte
	holders []*Holder // beside digests
}

// Len is how many tokens there are.
func (t *Table) Len() int { return len(t.holders) }

// file is the form of the file; see docs/security.md.
type file struct {
	Tokens []entry `yaml:"tokens"`
}

type entry struct {
	Name   string   `yaml:"name"`
	Token  string   `yaml:"token"`
	SHA256 string   `yaml:"sha256"`
	Lookup []string `yaml:"lookup"`
	Report []string `yaml:"report"`
}

// Parse reads a file of tokens. Its errors name the entry that is wrong and never a token.
func Parse(content []byte) (*Table, error) {
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	decoder.KnownFields(true)
	var f file
	if err := decoder.Decode(&f); err != nil {
		return nil, unreadable(err)
	}
	if err := decoder.Decode(new(file)); err == nil {
		return nil, errors.New("more than one document: write one list of tokens")
	}
	if len(f.Tokens) == 0 {
		return nil, errors.New("no tokens: write at least one under `tokens:`, or nobody gets in")
	}
	if len(f.Tokens) > MaxTokens {
		return nil, fmt.Errorf("%d tokens: write at most %d", len(f.Tokens), MaxTokens)
	}
	t := &Table{}
	for i := range f.Tokens {
		e := &f.Tokens[i]
		if e.Name == "" {
			return nil, fmt.Errorf("token %d has no name: write one, logs call its holder by it", i+1)
		}
		digest, err := e.digest()
		if err == nil && slices.Contains(t.digests, digest) {
			err = errors.New("the same token stands in the file twice: write one entry with the tenants of both")
		}
		h := &Holder{Name: e.Name}
		if err == nil {
			h.lookup, err = tenantsOf("lookup", e.Lookup)
		}
		if err == nil {
			h.report, err = tenantsOf("report", e.Report)
		}
		if err == nil && len(e.Lookup)+len(e.Report) == 0 {
			err = errors.New("it may do nothing: write tenants under `lookup:` or `report:`, or remove it")
		}
		if err != nil {
			return nil, fmt.Errorf("token %q: %w", e.Name, err)
		}
		t.digests, t.holders = append(t.digests, digest), append(t.holders, h)
	}
	return t, nil
}

// unreadable keeps yaml from quoting what may be a token.
func unreadable(err error) error {
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) {
		lines := make([]string, len(wrong.Errors))
		for i, text := range wrong.Errors {
			lines[i], _, _ = strings.Cut(text, ":")
			if strings.Contains(text, "not found in type") {
				lines[i] += ": a key that is none of name, token, sha256, lookup, report"
			} else {
				lines[i] += ": a value of the wrong kind"
			}
		}
		return errors.New(strings.Join(lines, "; "))
	}
	return fmt.Errorf("it is no YAML list under `tokens:` (%s)", firstWords(err))
}

// firstWords is what a syntax error says before it quotes: "yaml: line 3".
func firstWords(err error) string {
	parts := strings.SplitN(err.Error(), ":", 3)
	return strings.Join(parts[:min(2, len(parts))], ":")
}

func (e *entry) digest() (d [sha256.Size]byte, err error) {
	switch {
	case (e.Token == "") == (e.SHA256 == ""):
		return d, errors.New("write either `token:` or `sha256:`, and not both")
	case e.SHA256 != "":
		raw, err := hex.DecodeString(e.SHA256)
		if err != nil || len(raw) != sha256.Size {
			return d, errors.New("`sha256:` is not 64 hex digits: write what `printf %s TOKEN | sha256sum` prints")
		}
		return [sha256.Size]byte(raw), nil
	case len(e.Token) < leastToken:
		return d, fmt.Errorf("the token is too short: write at least %d characters, such as what `openssl rand -hex 32` prints", leastToken)
	case strings.Trim(e.Token, tokenCharacters) != "":
		return d, errors.New("the token has characters that a bearer token cannot have: write letters, digits and -._~+/=")
	}
	return sha256.Sum256([]byte(e.Token)), nil
}

// tokenCharacters are those of RFC 6750.
const tokenCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="

func tenantsOf(key string, names []string) (t tenants, err error) {
	t.named = make(map[string]bool, len(names))
	for _, n := range names {
		switch n {
		case "":
			return t, fmt.Errorf("an empty tenant under `%s:`: write its name, or %q for all", key, All)
		case All:
			t.all = true
		default:
			t.named[n] = true
		}
	}
	if t.all && len(names) > 1 {
		return t, fmt.Errorf("%q beside names under `%s:`: write %q alone, or the names", All, key, All)
	}
	return t, nil
}

// Holder tells whose token it is; nil = nobody's. It takes the same time whichever
// token is right, and whether one is: the digest is compared with every other in full.
func (t *Table) Holder(digest [sha256.Size]byte) *Holder {
	at := -1
	for i := range t.digests {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(t.digests[i][:], digest[:]), i, at)
	}
	if at < 0 {
		return nil
	}
	return t.holders[at]
}
