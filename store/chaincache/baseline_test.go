package chaincache

import (
	"sync"

	"inferencecache.io/lookuptier/ranking"
)

// obviousIndex is the index in memory as one writes it first: nested maps behind an
// RWMutex, and one map of the replicas that are still running per block.
type obviousIndex struct {
	mu     sync.RWMutex
	spaces map[ranking.Space]map[string]map[string]obviousHold
}

type obviousHold struct {
	seenMS int64
	tier   ranking.Tier
}

type obviousRun struct {
	tokens int64
	seenMS int64
	tier   ranking.Tier
	blocks int
}

func (x *obviousIndex) report(sp ranking.Space, replica string, seenMS int64, hashes [][]byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.spaces == nil {
		x.spaces = map[ranking.Space]map[string]map[string]obviousHold{}
	}
	if x.spaces[sp] == nil {
		x.spaces[sp] = map[string]map[string]obviousHold{}
	}
	for _, h := range hashes {
		if x.spaces[sp][string(h)] == nil {
			x.spaces[sp][string(h)] = map[string]obviousHold{}
		}
		x.spaces[sp][string(h)][replica] = obviousHold{seenMS: seenMS, tier: ranking.TierT1}
	}
}

func (x *obviousIndex) lookup(sp ranking.Space, hashes [][]byte, tokens []int32, cutoffMS int64) map[string]obviousRun {
	x.mu.RLock()
	defer x.mu.RUnlock()
	result := map[string]obviousRun{}
	blocks := x.spaces[sp]
	var running map[string]obviousRun
	for i, h := range hashes {
		still := map[string]obviousRun{}
		for replica, hold := range blocks[string(h)] {
			if hold.seenMS <= cutoffMS {
				continue
			}
			run, was := running[replica]
			if i > 0 && !was {
				continue
			}
			if !was {
				run.seenMS = hold.seenMS
			}
			run.tokens += int64(tokens[i])
			run.seenMS = min(run.seenMS, hold.seenMS)
			run.tier = max(run.tier, hold.tier)
			run.blocks++
			still[replica] = run
			result[replica] = run
		}
		if len(still) == 0 {
			break
		}
		running = still
	}
	return result
}

// flatTable is the alternative that was not chosen: every block of a chain is probed
// in one open-addressing table, in batches so that the misses of the processor's
// cache overlap, and the holders of consecutive blocks are intersected.
type flatTable struct {
	p     *Partition
	found [64]*block
	alive []runner
	runs  []ranking.Run
}

func (f *flatTable) lookup(sp *space, roster *Roster, hashes [][]byte, tokens []int32, cutoffMS int64) []ranking.Run {
	f.alive, f.runs = f.alive[:0], f.runs[:0]
	var sum int64
	for from := 0; from < len(hashes); from += len(f.found) {
		batch := hashes[from:min(from+len(f.found), len(hashes))]
		for i, h := range batch {
			f.found[i] = f.p.findBlock(sp, h)
		}
		for i, b := range f.found[:len(batch)] {
			if b == nil {
				return f.end(sum, from+i)
			}
			list := b.holds.Load().list
			if from+i == 0 {
				for i := range list {
					h := &list[i]
					if index := roster.Find(h.number); index >= 0 && h.seenMS.Load() > cutoffMS {
						f.alive = append(f.alive, runner{seenMS: h.seenMS.Load(), number: h.number, index: int32(index), tier: h.tier()})
					}
				}
			} else {
				f.step(list, cutoffMS, sum, from+i)
			}
			if len(f.alive) == 0 {
				return f.runs
			}
			sum += int64(tokens[from+i])
		}
	}
	return f.end(sum, len(hashes))
}

func (f *flatTable) step(list []hold, cutoffMS, sum int64, blocks int) {
	was := f.alive
	f.alive = was[:0]
	at := 0
	for _, r := range was {
		for at < len(list) && list[at].number < r.number {
			at++
		}
		if at == len(list) || list[at].number != r.number || list[at].seenMS.Load() <= cutoffMS {
			f.runs = append(f.runs, ranking.Run{Replica: int(r.index), Tokens: sum, SeenMS: r.seenMS, Tier: r.tier, Blocks: blocks})
			continue
		}
		r.seenMS = min(r.seenMS, list[at].seenMS.Load())
		r.tier = max(r.tier, list[at].tier())
		f.alive = append(f.alive, r)
	}
}

func (f *flatTable) end(sum int64, blocks int) []ranking.Run {
	for _, r := range f.alive {
		f.runs = append(f.runs, ranking.Run{Replica: int(r.index), Tokens: sum, SeenMS: r.seenMS, Tier: r.tier, Blocks: blocks})
	}
	return f.runs
}
