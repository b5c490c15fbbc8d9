package scripts

import _ "embed"

var (
	//go:embed partition.lua
	partitionText string
	//go:embed report.lua
	reportText string
	//go:embed evict.lua
	evictText string
	//go:embed clear.lua
	clearText string
	//go:embed stats.lua
	statsText string
	//go:embed head.lua
	headText string
	//go:embed sweep_begin.lua
	sweepBeginText string
	//go:embed sweep.lua
	sweepText string
	//go:embed sweep_end.lua
	sweepEndText string
	//go:embed catalog_file.lua
	catalogFileText string
	//go:embed catalog_census.lua
	catalogCensusText string
	//go:embed layout.lua
	layoutText string
)

// The scripts that change a partition share the text of partition.lua.
var (
	reportScript = newScript(partitionText + reportText)
	evictScript  = newScript(partitionText + evictText)
	clearScript  = newScript(partitionText + clearText)
	statsScript  = newScript(partitionText + statsText)
	headScript   = newScript(headText)

	sweepBeginScript = newScript(partitionText + sweepBeginText)
	sweepScript      = newScript(partitionText + sweepText)
	sweepEndScript   = newScript(partitionText + sweepEndText)

	catalogFileScript   = newScript(catalogFileText)
	catalogCensusScript = newScript(catalogCensusText)
	layoutScript        = newScript(layoutText)
)

// all is what Load loads.
var all = []*script{
	reportScript, evictScript, clearScript, statsScript, headScript,
	sweepBeginScript, sweepScript, sweepEndScript,
	catalogFileScript, catalogCensusScript, layoutScript,
}

// Now stands for the time at which a script runs, where a call takes a time.
const Now int64 = -1

// MaxHashes is how many hashes one Report or Evict takes.
const MaxHashes = 500
