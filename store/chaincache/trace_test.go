package chaincache

import (
	"bufio"
	"container/list"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// requests yields chains of block ids.
type requests func(yield func([]uint64) bool)

// conversations is the public trace if it is there: LOOKUPTIER_DATA names its directory.
func conversations(t *testing.T) (requests, bool) {
	path := filepath.Join(os.Getenv("LOOKUPTIER_DATA"), "conversation_trace.jsonl")
	if _, err := os.Stat(path); err != nil {
		return nil, false
	}
	return func(yield func([]uint64) bool) {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r struct {
				HashIDs []uint64 `json:"hash_ids"`
			}
			require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
			if !yield(r.HashIDs) {
				return
			}
		}
	}, true
}

// mix is made: conversations that grow turn by turn under a few system prompts, and
// between them batch jobs whose prompts come once.
func mix(n, scan int) requests {
	return func(yield func([]uint64) bool) {
		r := rand.New(rand.NewPCG(3, uint64(scan)))
		var talks [][]uint64
		next := uint64(1 << 32)
		for range n {
			if r.IntN(100) < scan {
				once := []uint64{next}
				for range 40 {
					next++
					once = append(once, next)
				}

				if !yield(once) {
					return
				}
				continue
			}
			if len(talks) < 400 || r.IntN(20) == 0 {
				trunk := uint64(r.IntN(20)) << 20
				talk := []uint64{}
				for i := range uint64(24) {
					talk = append(talk, trunk+i)
				}
				talks = append(talks, talk)
			}
			i := len(talks) - 1 - int(float64(min(400, len(talks)))*r.Float64()*r.Float64())
			for range 1 + r.IntN(8) {
				next++
				talks[i] = append(talks[i], next)
			}
			if !yield(talks[i]) {
				return
			}
		}
	}
}

// share of the blocks that a lookup needs and finds in memory, and in an LRU list
// of as many blocks. After each lookup the walk fills the memory, and an engine
// reports the whole chain.
func share(t *testing.T, reqs requests, bytes int64) (ours, lru float64, blocks int64) {
	c := newTestCache(t, bytes)
	p := c.NewPartition(Position{})
	pos := Position{}
	held := map[uint64]bool{}
	head := testHead{benchRoster(1)}
	byID := map[uint64]*list.Element{}
	recent := list.New()
	var needed, found, foundLRU int
	var a Answer
	for ids := range reqs {
		hashes, tokens := make([][]byte, len(ids)), make([]int32, len(ids))
		for i, id := range ids {
			hashes[i] = binary.BigEndian.AppendUint64(nil, id*0x9E3779B97F4A7C15)
		}
		need := 0 // what the walk has to know: the blocks held, and the first that is not
		for need < len(ids) && held[ids[need]] {
			need++
		}
		need = min(need+1, len(ids))
		needed += need

		q := &Query{Space: benchSpace, Hashes: hashes, Tokens: tokens}
		p.Lookup(q, &a)
		found += min(a.Known, need)
		if !a.Complete {
			w := &Walked{Space: benchSpace, Key: "k", Hashes: hashes, From: a.Known, Pos: pos, Head: head}
			for i := a.Known; i < need; i++ {
				var h []ranking.Hold
				if held[ids[i]] {
					h = []ranking.Hold{{Replica: 1, SeenMS: 1, Tier: 1}}
				}
				w.Holds = append(w.Holds, h)
			}
			r := p.Read()
			_ = r.Fill(w)
			r.End()
		}
		ch := report(1, 1, hashes)
		ch.Prev, ch.Pos = pos, Position{MS: pos.MS + 1}
		pos = ch.Pos
		require.NoError(t, p.Apply(ch))

		blocks = max(blocks, c.blocks.Load())
		hit := true
		for _, id := range ids[:need] {
			e := byID[id]
			if hit = hit && e != nil; hit {
				foundLRU++
			}
			if e != nil {
				recent.MoveToFront(e)
			} else {
				byID[id] = recent.PushFront(id)
			}
		}
		for int64(recent.Len()) > blocks {
			delete(byID, recent.Remove(recent.Back()).(uint64))
		}
		for _, id := range ids {
			held[id] = true
		}
	}
	check(t, c, p)
	return float64(found) / float64(needed), float64(foundLRU) / float64(needed), blocks
}

func TestEvictionKeepsWhatIsWantedAgain(t *testing.T) {
	trace, ok := conversations(t)
	n, sizes := 3000, []int64{1}
	if ok { // somebody wants figures
		n, sizes = 12_000, []int64{1, 2, 4, 8}
	}
	loads := map[string]requests{"talks": mix(n, 0), "talks and 50% scans": mix(n, 50), "talks and 80% scans": mix(n, 80)}
	if ok {
		loads["conversation trace"] = trace
	}
	for name, load := range loads {
		all, _, total := share(t, load, 1<<32)
		t.Logf("%-20s unbounded: %5.1f %% of the blocks needed, %d blocks", name, 100*all, total)
		for _, mb := range sizes {
			ours, lru, blocks := share(t, load, mb<<20)
			t.Logf("%-20s %d MiB, %6d blocks: %5.1f %%, LRU of as many blocks %5.1f %%", name, mb, blocks, 100*ours, 100*lru)
			require.Greater(t, ours, lru-0.05)
			require.LessOrEqual(t, ours, all+0.001)
		}
	}
}
