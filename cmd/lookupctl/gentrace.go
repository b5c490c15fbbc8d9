package main

import "inferencecache.io/lookuptier/replay"

type genTraceCmd struct {
	Requests    int    `default:"600" help:"Lines to write."`
	BlockTokens int64  `default:"512" help:"Tokens of a block."`
	Seed        uint64 `default:"1" help:"The same seed gives the same trace."`
}

// Help is shown under the usage of the command.
func (genTraceCmd) Help() string {
	return "Chats that share system prompts and grow turn by turn. With the defaults it is the trace in examples/traces."
}

func (c *genTraceCmd) Run(s *session) error {
	if c.Requests < 1 || c.BlockTokens < 1 {
		return usagef("--requests and --block-tokens must be at least 1")
	}
	return replay.Generate(s.out, replay.GenerateOptions{Requests: c.Requests, BlockTokens: c.BlockTokens, Seed: c.Seed})
}
