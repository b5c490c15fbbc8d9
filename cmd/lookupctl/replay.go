package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"inferencecache.io/lookuptier/replay"
)

type replayCmd struct {
	Trace string `arg:"" name:"trace.jsonl" help:"Trace in Mooncake's JSONL form; - for standard input."`

	Engines      int    `default:"4" group:"Engines" help:"Simulated engines."`
	Blocks       int    `default:"2000" group:"Engines" help:"KV blocks that each engine caches."`
	BlockTokens  int64  `default:"512" group:"Engines" help:"Tokens of a block of the trace."`
	EnginePrefix string `default:"replay-engine-" group:"Engines" help:"Replica ids are this and a number."`
	Slots        int    `default:"0" group:"Engines" help:"Requests that an engine runs at once. Above 0, engines report hit rate and pressure, by the trace's clock."`
	MSPerToken   int    `name:"ms-per-token" default:"20" group:"Engines" help:"How long an engine takes for each token of an answer; with --slots."`

	Tenant  string `default:"replay" group:"Keys" help:"Tenant of lookups and reports."`
	Model   string `default:"trace" group:"Keys" help:"Model of lookups and reports."`
	Scheme  string `default:"replay" group:"Keys" help:"Hash scheme of lookups and reports."`
	Adapter string `group:"Keys" placeholder:"NAME" help:"LoRA adapter of lookups and reports; none = the base model."`
	Seed    uint64 `default:"0" group:"Keys" help:"Changes all block hashes."`

	Limit       int     `default:"0" group:"Course" help:"Requests to play; 0 = the whole trace."`
	Warmup      int     `default:"-1" group:"Course" help:"Requests at the start that go round robin whatever the hint; -1 = one for each engine."`
	Speed       float64 `default:"0" group:"Course" help:"1 = requests arrive as recorded, 10 = ten times faster, 0 = one after another."`
	Concurrency int     `default:"1" group:"Course" help:"Requests under way at once; only 1 is deterministic."`
	Pipeline    int     `default:"32" group:"Course" help:"Evictions of one request under way at once."`
	ClearFirst  bool    `default:"true" negatable:"" group:"Course" help:"Tell the tier first that the simulated engines are empty (on)."`
	WholeChains bool    `group:"Course" help:"Report each request's whole chain, so that blocks in use stay fresh, not only new blocks."`

	RetryFor time.Duration `default:"30s" group:"Course" help:"How long to repeat a report that the tier does not take."`
}

// Help is shown under the usage of the command.
func (replayCmd) Help() string {
	return `Each request is looked up, goes to the top hint's engine, or to the next one in turn
without a hint, and what the engine stores and evicts is reported. Prints how many
prompt blocks were reused, beside round robin and shared caches on the same requests.

  lookupctl replay examples/traces/sample.jsonl --engines 4 --blocks 400`
}

func (c *replayCmd) Run(s *session) error {
	o := c.options(s)
	if err := o.Check(); err != nil {
		return usagef("%v", err)
	}
	if c.Limit < 0 {
		return usagef("--limit is %d; give 0 for the whole trace, or how many requests to play", c.Limit)
	}
	trace, err := c.read(s)
	if err != nil {
		return err
	}
	client, closeConn, err := s.dial()
	if err != nil {
		return err
	}
	defer closeConn()
	bar := newProgress(s.err, len(trace))
	o.Progress = bar.report
	result, err := replay.Run(s.ctx, client, trace, o)
	bar.finish()
	if result != nil && (err == nil || result.Requests > 0) {
		if err := writeReplay(s, &o, result); err != nil {
			return err
		}
	}
	if replay.BrokenOff(err) {
		return errors.New("interrupted; the figures are of the requests until then")
	}
	return s.explainError(err)
}

func (c *replayCmd) options(s *session) replay.Options {
	warmup := c.Warmup
	if warmup == -1 {
		warmup = c.Engines
	}
	return replay.Options{
		Engines: c.Engines, Blocks: c.Blocks, BlockTokens: c.BlockTokens, EnginePrefix: c.EnginePrefix,
		Slots: c.Slots, TokenTime: time.Duration(c.MSPerToken) * time.Millisecond,
		Tenant: c.Tenant, Model: c.Model, Scheme: c.Scheme, Adapter: c.Adapter, Seed: c.Seed,
		Warmup: warmup, Speed: c.Speed, Concurrency: c.Concurrency, Pipeline: c.Pipeline,
		Clear: c.ClearFirst, WholeChains: c.WholeChains,
		RPCTimeout: s.timeout, RetryFor: c.RetryFor,
	}
}

func (c *replayCmd) read(s *session) ([]replay.Request, error) {
	in, name := s.in, "standard input"
	if c.Trace != "-" {
		f, err := os.Open(c.Trace)
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		defer func() { _ = f.Close() }()
		in, name = f, c.Trace
	}
	return replay.NewReader(in, name, c.BlockTokens).ReadAll(c.Limit)
}
