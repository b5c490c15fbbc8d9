package doctor

import (
	"fmt"
	"slices"
)

// leastSamples is how many holds of a replica it takes to tell its block size: eight
// running sums that are all even by chance are one in 256, twelve one in 4,096.
const leastSamples = 12

// checkBlockSizes compares the token counts of sampled holds: of one block between its
// holders, and what all running sums of a replica are multiples of.
func checkBlockSizes(m *model, out *findings) {
	const check = "producers.block_size"
	const fix = "Give all engines of the model one block size (vLLM --block-size, SGLang --page-size), and lookup pods the same --engine-block-size: blocks of different sizes never match."
	for _, scheme := range m.schemes {
		var unequal []string
		steps := map[string]*step{}
		for _, p := range m.parts {
			ids := map[uint32]string{}
			for id, r := range p.Replicas {
				ids[r.Number] = id
			}
			for i := range p.Spaces {
				if p.Spaces[i].Scheme == scheme {
					unequal = append(unequal, stepsOf(&p.Spaces[i], ids, steps)...)
				}
			}
		}
		subject := m.String() + fmt.Sprintf(" scheme %q", scheme)
		if len(unequal) > 0 {
			out.add(Warn, check, subject, "replicas report different token counts for the same block", fix+" Exact lookups take each replica's own count.", unequal...)
			continue
		}
		if evidence, differ := stepText(steps); differ {
			out.add(Warn, check, subject, "replicas seem to cut prompts into blocks of different sizes", fix, evidence...)
		}
	}
}

// step is what the running sums of one replica have in common.
type step struct {
	gcd, n int
}

// stepsOf adds a space's samples to steps, and tells blocks whose holders disagree.
func stepsOf(sp *SpaceFacts, ids map[uint32]string, steps map[string]*step) (unequal []string) {
	for _, holds := range sp.Samples {
		first := ""
		tokens := int32(0)
		for _, h := range holds {
			id, known := ids[h.Replica]
			if !known || h.Tokens <= 0 {
				continue
			}
			s := steps[id]
			if s == nil {
				s = &step{}
				steps[id] = s
			}
			s.gcd, s.n = gcd(s.gcd, int(h.Tokens)), s.n+1
			switch {
			case first == "":
				first, tokens = id, h.Tokens
			case h.Tokens != tokens:
				unequal = append(unequal, fmt.Sprintf("%q says %d tokens, %q says %d", first, tokens, id, h.Tokens))
			}
		}
	}
	return unequal
}

// stepText lists block sizes if they differ. A size of 1 says nothing: whole prefixes
// of any length were reported.
func stepText(steps map[string]*step) (evidence []string, differ bool) {
	bySize := map[int][]string{}
	for id, s := range steps {
		if s.n >= leastSamples && s.gcd > 1 {
			bySize[s.gcd] = append(bySize[s.gcd], id)
		}
	}
	for size, ids := range bySize {
		evidence = append(evidence, fmt.Sprintf("multiples of %d: %s", size, quoted(ids)))
	}
	slices.Sort(evidence)
	return evidence, len(bySize) > 1
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
