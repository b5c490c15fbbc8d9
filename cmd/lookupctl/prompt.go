package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"inferencecache.io/lookuptier/ranking"
)

// maxInput bounds what is read from a file or standard input.
const maxInput = 64 << 20

// scopeFlags name what the index is partitioned by.
type scopeFlags struct {
	Tenant string `placeholder:"NAME" help:"Tenant: the namespace of its CachePolicy."`
	Model  string `placeholder:"NAME" help:"Model, as the engines' sidecars name it."`
}

// required is the check for commands that make no sense without both.
func (f *scopeFlags) required() error {
	switch {
	case f.Tenant == "":
		return usagef("--tenant is missing; the index ignores what comes without one")
	case f.Model == "":
		return usagef("--model is missing; the index ignores what comes without one")
	}
	return nil
}

// promptFlags name a prompt in one of three ways.
type promptFlags struct {
	Chain        string `placeholder:"HEX,…" help:"Hashes of the prompt's blocks in hex, first block first; @FILE or - reads them."`
	Counts       string `placeholder:"N,…" help:"Tokens of each block of --chain."`
	BlockTokens  int32  `placeholder:"N" help:"Tokens of every block, instead of --counts."`
	PrefixHash   string `placeholder:"HEX" help:"Hash of the whole prefix, for an exact match."`
	PrefixTokens int32  `placeholder:"N" help:"Tokens that --prefix-hash stands for."`
	Tokens       string `placeholder:"ID,…" help:"Token ids; @FILE or - reads them."`
}

// prompt is what promptFlags say.
type prompt struct {
	hashes       [][]byte
	counts       []int32
	prefixHash   []byte
	prefixTokens int32
	tokens       []uint32
}

// resolve reads the flags. A chain and a prefix hash may stand together; token ids stand alone.
func (f *promptFlags) resolve(stdin io.Reader) (p prompt, err error) {
	if f.Tokens != "" && (f.Chain != "" || f.PrefixHash != "") {
		return p, usagef("--tokens stands for the whole prompt; give it or --chain and --prefix-hash, not both")
	}
	if err := f.orphans(); err != nil {
		return p, err
	}
	if f.Chain != "" {
		if err := f.chain(stdin, &p); err != nil {
			return p, err
		}
	}
	if f.PrefixHash != "" {
		if p.prefixHash, err = parseHash("--prefix-hash", f.PrefixHash); err != nil {
			return p, err
		}
		p.prefixTokens = f.PrefixTokens
	}
	if f.Tokens != "" {
		p.tokens, err = tokenIDs(f.Tokens, stdin)
	}
	return p, err
}

// orphans finds flags whose partner is missing.
func (f *promptFlags) orphans() error {
	switch {
	case f.Counts != "" && f.Chain == "":
		return usagef("--counts goes with --chain")
	case f.Counts != "" && f.BlockTokens != 0:
		return usagef("give --counts or --block-tokens, not both")
	case f.BlockTokens < 0:
		return usagef("--block-tokens is %d; give at least 1", f.BlockTokens)
	case f.PrefixTokens < 0:
		return usagef("--prefix-tokens is %d; give 0 or more", f.PrefixTokens)
	case f.PrefixTokens != 0 && f.PrefixHash == "":
		return usagef("--prefix-tokens goes with --prefix-hash")
	}
	return nil
}

func (f *promptFlags) chain(stdin io.Reader, p *prompt) error {
	words, err := listOf("--chain", f.Chain, stdin)
	if err != nil {
		return err
	}
	for _, w := range words {
		h, err := parseHash("--chain", w)
		if err != nil {
			return err
		}
		p.hashes = append(p.hashes, h)
	}
	switch {
	case f.Counts != "":
		for _, w := range strings.FieldsFunc(f.Counts, separates) {
			n, err := strconv.ParseInt(w, 10, 32)
			if err != nil || n < 0 {
				return usagef("--counts: %q is no number of tokens", w)
			}
			p.counts = append(p.counts, int32(n))
		}
		if len(p.counts) != len(p.hashes) {
			return usagef("--chain has %s but --counts %s; give as many counts as hashes",
				plural(len(p.hashes), "hash"), plural(len(p.counts), "number"))
		}
	case f.BlockTokens > 0:
		for range p.hashes {
			p.counts = append(p.counts, f.BlockTokens)
		}
	default:
		return usagef("--chain needs the tokens of its blocks: --block-tokens 16, or --counts 16,16,5")
	}
	return nil
}

// fingerprint turns token ids into the chain that a sidecar would report for them.
func (p *prompt) fingerprint(blockTokens int32) error {
	packed := ranking.AppendFingerprints(nil, nil, p.tokens, int(blockTokens))
	if len(packed) == 0 {
		return usagef("--tokens has %s, fewer than one block of %d; only full blocks are indexed",
			plural(len(p.tokens), "id"), blockTokens)
	}
	for ; len(packed) > 0; packed = packed[ranking.FingerprintBytes:] {
		p.hashes = append(p.hashes, packed[:ranking.FingerprintBytes])
		p.counts = append(p.counts, blockTokens)
	}
	p.tokens = nil
	return nil
}

func parseHash(flag, word string) ([]byte, error) {
	h, err := hex.DecodeString(strings.TrimPrefix(strings.TrimSpace(word), "0x"))
	if err != nil || len(h) == 0 {
		return nil, usagef("%s: %q is no hash; write bytes in hex, such as ea06fc71a5ee6e88", flag, word)
	}
	return h, nil
}

func tokenIDs(value string, stdin io.Reader) ([]uint32, error) {
	words, err := listOf("--tokens", value, stdin)
	if err != nil {
		return nil, err
	}
	ids := make([]uint32, len(words))
	for i, w := range words {
		id, err := strconv.ParseUint(w, 10, 32)
		if err != nil {
			return nil, usagef("--tokens: %q is no token id; write numbers from 0 to 4294967295", w)
		}
		ids[i] = uint32(id)
	}
	return ids, nil
}

// separates tells what may stand between the elements of a list: commas, space, and
// the brackets and quotes of a JSON array.
func separates(r rune) bool { return strings.ContainsRune(", \t\r\n[]\"", r) }

// listOf splits a flag's list; @FILE and - stand for what can be read there.
func listOf(flag, value string, stdin io.Reader) ([]string, error) {
	if name, isFile := strings.CutPrefix(value, "@"); isFile || value == "-" {
		if value == "-" {
			name = value
		}
		text, err := readInput(flag, name, stdin)
		if err != nil {
			return nil, err
		}
		value = string(text)
	}
	words := strings.FieldsFunc(value, separates)
	if len(words) == 0 {
		return nil, usagef("%s is an empty list", flag)
	}
	return words, nil
}

// readInput reads a file, or standard input for "-".
func readInput(flag, name string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(text) > maxInput {
		return nil, fmt.Errorf("%s: %s is larger than %d MiB", flag, name, maxInput>>20)
	}
	return text, nil
}
