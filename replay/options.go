package replay

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Bounds that keep products of options in an int, far beyond what a machine can simulate.
const (
	maxEngines = 1 << 14
	maxBlocks  = 1 << 30
)

// Options describe one replay. Check fills no defaults: every field means what it says.
type Options struct {
	// Engines is how many model servers are simulated; at least 1.
	Engines int
	// Blocks is how many KV blocks each engine caches; at least 1.
	Blocks int
	// BlockTokens is how many tokens a full block holds; at least 1.
	BlockTokens int64

	// Tenant, Model and Scheme are the keys that lookups and reports carry; none is empty.
	Tenant, Model, Scheme string
	// Adapter is the partition of the index; empty = the default one.
	Adapter string
	// EnginePrefix and the engine's number make a replica id; not empty.
	EnginePrefix string
	// Seed changes all block hashes, and with them what AFFINITY_HINT picks.
	Seed uint64

	// Concurrency is how many requests are under way at once; 1 makes the replay
	// deterministic, more shows how the tier bears load.
	Concurrency int
	// Pipeline bounds the evictions of one request that are under way at once; at least 1.
	Pipeline int
	// Speed is how much faster than recorded the requests arrive: 1 = as recorded,
	// 0 = each as soon as the one before is done.
	Speed float64
	// Warmup is how many requests at the start go round robin whatever their hints
	// say, so that every engine serves before hints count.
	Warmup int
	// Clear tells the tier at the start that every engine's cache is empty, as an
	// engine does that starts. Without it, holds of an earlier replay give false hints.
	Clear bool
	// WholeChains reports each request's whole resident chain, so that blocks in use
	// stay fresh. Otherwise only newly stored blocks are reported, as engines do.
	WholeChains bool

	// Slots is how many requests an engine can run at once. Above 0, engines report
	// hit rate and pressure (requests running by the trace's clock, over Slots) with
	// each update and once a second of the trace; 0 = no stats.
	Slots int
	// TokenTime is how long an engine takes for each token of an answer, by the
	// trace's clock. It decides how long a request runs; used only with Slots.
	TokenTime time.Duration

	// RPCTimeout bounds each call; more than 0.
	RPCTimeout time.Duration
	// RetryFor is how long a report or event that the tier did not take is sent again
	// before the replay gives up; 0 = not at all.
	RetryFor time.Duration

	// Progress, if set, is called after each request from any goroutine, one call at a time.
	Progress func(done, total int)
}

// Check returns the first thing about the options that makes no sense.
func (o *Options) Check() error {
	switch {
	case o.Engines < 1 || o.Engines > maxEngines:
		return fmt.Errorf("engines is %d; give from 1 to %d", o.Engines, maxEngines)
	case o.Blocks < 1 || o.Blocks > maxBlocks:
		return fmt.Errorf("blocks is %d; an engine's cache has from 1 to %d", o.Blocks, maxBlocks)
	case o.BlockTokens < 1 || o.BlockTokens > math.MaxInt32:
		return fmt.Errorf("block tokens is %d; a block holds from 1 to %d tokens", o.BlockTokens, math.MaxInt32)
	case o.Tenant == "" || o.Model == "" || o.Scheme == "":
		return errors.New("tenant, model and hash scheme must all be set; the tier gives no hint without them")
	case o.EnginePrefix == "":
		return errors.New("the engine prefix is empty; the tier drops what it hears of nameless replicas")
	case o.Concurrency < 1:
		return fmt.Errorf("concurrency is %d; at least 1 request must be under way", o.Concurrency)
	case o.Pipeline < 1:
		return fmt.Errorf("pipeline is %d; at least 1 eviction must be under way", o.Pipeline)
	case math.IsNaN(o.Speed) || math.IsInf(o.Speed, 0) || o.Speed < 0:
		return fmt.Errorf("speed is %v; give 0 for as fast as possible, 1 for as recorded, 10 for ten times faster", o.Speed)
	case o.Warmup < 0:
		return fmt.Errorf("warmup is %d; give 0 or more requests", o.Warmup)
	case o.Slots < 0:
		return fmt.Errorf("slots is %d; give 0 for no stats, else how many requests an engine runs at once", o.Slots)
	case o.Slots > 0 && o.TokenTime <= 0:
		return fmt.Errorf("token time is %v; with slots it must be more than 0", o.TokenTime)
	case o.RPCTimeout <= 0:
		return fmt.Errorf("the timeout is %v; it must be more than 0", o.RPCTimeout)
	case o.RetryFor < 0:
		return fmt.Errorf("the time to retry is %v; give 0 or more", o.RetryFor)
	}
	return nil
}

// EngineID is the replica id of the engine with that number, from 0.
func (o *Options) EngineID(number int) string { return o.EnginePrefix + strconv.Itoa(number) }
