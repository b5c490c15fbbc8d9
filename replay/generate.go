package replay

import (
	"bufio"
	"container/heap"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
)

// Shape of a generated trace: chats that begin with one of a few system prompts and
// grow turn by turn, beside one-shot prompts that share nothing but their start.
const (
	genSystems      = 6
	genSystemTokens = 1500 // mean length of a system prompt
	genTurnTokens   = 700  // mean length of what a user adds in one turn
	genAnswerTokens = 250  // mean length of an answer
	genTurns        = 5    // mean number of turns of a chat
	genArrivalMS    = 900  // mean time between the starts of two chats
	genThinkMS      = 20_000
)

// GenerateOptions describe a synthetic trace.
type GenerateOptions struct {
	// Requests is the number of lines; at least 1.
	Requests int
	// BlockTokens is the size of a block; at least 1.
	BlockTokens int64
	// Seed decides everything: the same options give the same bytes.
	Seed uint64
}

// Generate writes a synthetic trace, in the form that Reader reads.
func Generate(w io.Writer, o GenerateOptions) error {
	if o.Requests < 1 || o.BlockTokens < 1 {
		return errors.New("a trace needs at least one request, and its blocks at least one token")
	}
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	g := newGenerator(o)
	for range o.Requests {
		if err := lines.Encode(g.next()); err != nil {
			return err
		}
	}
	return out.Flush()
}

// traceLine has the fields in the order in which traces have them.
type traceLine struct {
	Timestamp    int64    `json:"timestamp"`
	InputLength  int64    `json:"input_length"`
	OutputLength int64    `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids"`
}

type generator struct {
	o       GenerateOptions
	rand    *rand.Rand
	systems []prompt
	waiting chats
	nextID  uint64
	chatMS  float64 // when the next chat begins
	begun   int     // chats so far
}

// prompt is a text of which only the length and the blocks matter.
type prompt struct {
	tokens int64
	full   []uint64 // ids of its full blocks
}

// chat waits for its next turn.
type chat struct {
	prompt
	atMS  float64
	order int // breaks ties, so that the heap's order is fixed
	turns int // that are still to come
}

func newGenerator(o GenerateOptions) *generator {
	g := &generator{o: o, rand: rand.New(rand.NewPCG(o.Seed, 0))}
	for range genSystems {
		g.systems = append(g.systems, g.grow(prompt{}, 1+g.around(genSystemTokens)))
	}
	return g
}

// next produces the earliest request that is due.
func (g *generator) next() traceLine {
	for g.waiting.Len() == 0 || g.waiting[0].atMS > g.chatMS {
		g.begin()
	}
	c := heap.Pop(&g.waiting).(*chat)
	c.prompt = g.grow(c.prompt, 1+g.around(genTurnTokens))
	answer := 1 + g.around(genAnswerTokens)
	line := traceLine{
		Timestamp:    int64(c.atMS),
		InputLength:  c.tokens,
		OutputLength: answer,
		HashIDs:      append([]uint64{}, c.full...),
	}
	if c.tokens%g.o.BlockTokens != 0 {
		line.HashIDs = append(line.HashIDs, g.newID())
	}
	if c.turns--; c.turns > 0 {
		c.prompt = g.grow(c.prompt, answer)
		c.atMS += g.rand.ExpFloat64() * genThinkMS
		heap.Push(&g.waiting, c)
	}
	return line
}

func (g *generator) begin() {
	system := g.systems[g.rand.IntN(len(g.systems))]
	g.begun++
	heap.Push(&g.waiting, &chat{prompt: system, atMS: g.chatMS, order: g.begun, turns: 1 + int(g.around(genTurns-1))})
	g.chatMS += g.rand.ExpFloat64() * genArrivalMS
}

// grow appends tokens to a prompt; the blocks that become full get ids.
func (g *generator) grow(p prompt, tokens int64) prompt {
	grown := prompt{tokens: p.tokens + tokens, full: append([]uint64{}, p.full...)}
	for int64(len(grown.full)) < grown.tokens/g.o.BlockTokens {
		grown.full = append(grown.full, g.newID())
	}
	return grown
}

func (g *generator) newID() uint64 {
	g.nextID++
	return g.nextID - 1
}

// around draws a length with the given mean, long-tailed as real ones are.
func (g *generator) around(mean float64) int64 { return int64(g.rand.ExpFloat64() * mean) }

// chats is a heap by time.
type chats []*chat

func (c chats) Len() int { return len(c) }
func (c chats) Less(i, j int) bool {
	if c[i].atMS != c[j].atMS {
		return c[i].atMS < c[j].atMS
	}
	return c[i].order < c[j].order
}
func (c chats) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *chats) Push(x any)   { *c = append(*c, x.(*chat)) }
func (c *chats) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}
