package chaincache

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"inferencecache.io/lookuptier/ranking"
)

// shape is one workload of issue-sized chains.
type shape struct {
	name             string
	blocks, replicas int // of the chain, and of the partition
	holders, shared  int // replicas that hold it, and how many of its first blocks
	width            int // bytes of a hash
}

var shapes = []shape{
	{"256blocks-8holders", 256, 8, 8, 256, 8},
	{"64shared-of-128replicas", 64, 128, 128, 64, 8},
	{"2000blocks-32holders", 2000, 32, 32, 2000, 8},
	{"256blocks-8holders-32byte", 256, 8, 8, 256, 32},
}

var benchSpace = ranking.Space{Scheme: "vllm", Adapter: ""}

// chainOf makes hashes that lie in one buffer, as a request's do.
func chainOf(seed uint64, blocks, width int) ([][]byte, []int32) {
	r := rand.New(rand.NewPCG(seed, 1))
	buf := make([]byte, blocks*(width+2))
	hashes, tokens := make([][]byte, blocks), make([]int32, blocks)
	for i := range hashes {
		h := buf[i*(width+2)+2:][:width:width]
		for j := 0; j < width; j += 8 {
			binary.BigEndian.PutUint64(h[j:], r.Uint64())
		}
		hashes[i], tokens[i] = h, 16
	}
	return hashes, tokens
}

func benchRoster(n int) *Roster {
	replicas, numbers := make([]ranking.Replica, n), make([]uint32, n)
	for i := range n {
		replicas[i].ID, numbers[i] = fmt.Sprintf("engine-%03d", i), uint32(i+1)
	}
	return NewRoster(replicas, numbers)
}

func (s shape) walked(hashes [][]byte) *Walked {
	w := &Walked{Space: benchSpace, Key: "k", Hashes: hashes, Head: testHead{benchRoster(s.replicas)}}
	for range hashes {
		var holds []ranking.Hold
		for n := range s.holders {
			holds = append(holds, ranking.Hold{Replica: uint32(n + 1), SeenMS: int64(1000 + n), Tier: 1, Tokens: 16})
		}
		w.Holds = append(w.Holds, holds)
	}
	return w
}

// filled is a partition that knows the shape's chain for each seed.
func (s shape) filled(b testing.TB, chains int) *Partition {
	c, err := New(4 << 30)
	if err != nil {
		b.Fatal(err)
	}
	p := c.NewPartition(Position{})
	r := p.Read()
	defer r.End()
	for i := range chains {
		hashes, _ := chainOf(uint64(i), s.blocks, s.width)
		if err := r.Fill(s.walked(hashes)); err != nil {
			b.Fatal(err)
		}
	}
	return p
}

func (s shape) query(seed uint64) *Query {
	hashes, tokens := chainOf(seed, s.blocks, s.width)
	return &Query{Space: benchSpace, Hashes: hashes, Tokens: tokens}
}

// BenchmarkHotLookup: one chain again and again, each structure in turn.
func BenchmarkHotLookup(b *testing.B) {
	for _, s := range shapes {
		p := s.filled(b, 1)
		q := s.query(0)
		b.Run(s.name+"/tree", func(b *testing.B) {
			var a Answer
			b.ReportAllocs()
			done := cpuTime(b)
			for b.Loop() {
				p.Lookup(q, &a)
			}
			done()
			if !a.Complete || len(a.Runs) != s.holders || a.Runs[0].Blocks != s.blocks {
				b.Fatalf("%+v", a)
			}
		})
		b.Run(s.name+"/flat", func(b *testing.B) {
			f, roster := flatTable{p: p}, benchRoster(s.replicas)
			sp := p.findSpace(benchSpace)
			b.ReportAllocs()
			done := cpuTime(b)
			for b.Loop() {
				if len(f.lookup(sp, roster, q.Hashes, q.Tokens, 0)) != s.holders {
					b.Fatal("wrong")
				}
			}
			done()
		})
		b.Run(s.name+"/obvious", func(b *testing.B) {
			var x obviousIndex
			for n := range s.holders {
				x.report(benchSpace, fmt.Sprintf("engine-%03d", n), int64(1000+n), q.Hashes)
			}
			b.ReportAllocs()
			done := cpuTime(b)
			for b.Loop() {
				if len(x.lookup(benchSpace, q.Hashes, q.Tokens, 0)) != s.holders {
					b.Fatal("wrong")
				}
			}
			done()
		})
	}
}

// BenchmarkColdMemoryLookup: a thousand chains in turn, more than the processor's caches hold.
func BenchmarkColdMemoryLookup(b *testing.B) {
	const chains = 1000
	s := shapes[0]
	p := s.filled(b, chains)
	queries := make([]*Query, chains)
	for i := range queries {
		queries[i] = s.query(uint64(i))
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(chains)
	b.Run("tree", func(b *testing.B) {
		var a Answer
		done := cpuTime(b)
		for i := 0; b.Loop(); i++ {
			p.Lookup(queries[order[i%chains]], &a)
		}
		done()
	})
	b.Run("flat", func(b *testing.B) {
		f, roster := flatTable{p: p}, benchRoster(s.replicas)
		sp := p.findSpace(benchSpace)
		done := cpuTime(b)
		for i := 0; b.Loop(); i++ {
			q := queries[order[i%chains]]
			f.lookup(sp, roster, q.Hashes, q.Tokens, 0)
		}
		done()
	})
}

// BenchmarkParallelLookup: all cores on one chain, with a quiet log and with one that
// never pauses; as it is, and behind an RWMutex instead of the sequence number.
func BenchmarkParallelLookup(b *testing.B) {
	for _, writes := range []bool{false, true} {
		for _, locked := range []bool{false, true} {
			b.Run(fmt.Sprintf("writes=%v/rwmutex=%v", writes, locked), func(b *testing.B) {
				parallelLookup(b, writes, locked)
			})
		}
	}
}

func parallelLookup(b *testing.B, writes, locked bool) {
	s := shapes[0]
	p := s.filled(b, 8)
	var mu sync.RWMutex
	var stop atomic.Bool
	done := make(chan int)
	go func() {
		n := 0
		for at := (Position{}); writes && !stop.Load(); n++ {
			hashes, _ := chainOf(uint64(n%8), s.blocks, s.width)
			ch := report(uint32(1+n%8), int64(2000+n), hashes)
			ch.Prev, ch.Pos = at, Position{MS: at.MS + 1}
			at = ch.Pos
			if locked {
				mu.Lock()
			}
			if p.Apply(ch) != nil {
				panic("apply")
			}
			if locked {
				mu.Unlock()
			}
		}
		done <- n
	}()
	q := s.query(0)
	b.ResetTimer()
	measured := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		var a Answer
		for pb.Next() {
			if locked {
				mu.RLock()
			}
			p.Lookup(q, &a)
			if locked {
				mu.RUnlock()
			}
		}
	})
	measured()
	stop.Store(true)
	if n := <-done; writes {
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "reports/s")
		b.ReportMetric(float64(p.c.retries.Load())/float64(b.N), "retries/op")
	}
}

func report(number uint32, seenMS int64, hashes [][]byte) *Change {
	ch := &Change{Number: number, SeenMS: seenMS, Space: "k"}
	for _, h := range hashes {
		ch.Held = append(ch.Held, Entry{Hash: h, Tier: 1, Tokens: 16})
	}
	return ch
}

// BenchmarkApply: a report of 256 blocks that are all known, and the lookup after it,
// which works out the digest anew.
func BenchmarkApply(b *testing.B) {
	for _, s := range []shape{shapes[0], {"256blocks-128holders", 256, 128, 128, 256, 8}} {
		b.Run(s.name, func(b *testing.B) {
			p := s.filled(b, 1)
			q := s.query(0)
			b.ReportAllocs()
			at := Position{}
			done := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				ch := report(uint32(1+i%s.holders), int64(2000+i), q.Hashes)
				ch.Prev, ch.Pos = at, Position{MS: at.MS + 1}
				at = ch.Pos
				if err := p.Apply(ch); err != nil {
					b.Fatal(err)
				}
			}
			done()
		})
		b.Run(s.name+"/lookup-after", func(b *testing.B) {
			p := s.filled(b, 1)
			q := s.query(0)
			var a Answer
			done := cpuTime(b)
			for b.Loop() {
				p.c.mu.Lock()
				p.findBlock(p.findSpace(benchSpace), q.Hashes[0]).dirty()
				p.c.mu.Unlock()
				p.Lookup(q, &a)
			}
			done()
		})
	}
}

// BenchmarkFill: 256 new blocks with one holder each.
func BenchmarkFill(b *testing.B) {
	s := shape{"", 256, 8, 1, 256, 8}
	c, _ := New(64 << 20)
	p := c.NewPartition(Position{})
	r := p.Read()
	defer r.End()
	walks := make([]*Walked, 64)
	for i := range walks {
		hashes, _ := chainOf(uint64(i), s.blocks, 8)
		walks[i] = s.walked(hashes)
	}
	b.ReportAllocs()
	done := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		w := walks[i%len(walks)]
		// Another chain each time: change all first bytes.
		for _, h := range w.Hashes {
			binary.BigEndian.PutUint32(h, uint32(i))
		}
		if err := r.Fill(w); err != nil {
			b.Fatal(err)
		}
	}
	done()
	b.ReportMetric(float64(c.bytes.Load())/float64(c.blocks.Load()), "B/block")
}
