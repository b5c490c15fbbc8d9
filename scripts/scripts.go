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
	//go:embed walk.lua
	walkText string
)

// The scripts that change a partition share the text of partition.lua.
var (
	reportScript = newScript(partitionText + reportText)
	evictScript  = newScript(partitionText + evictText)
	clearScript  = newScript(partitionText + clearText)
	statsScript  = newScript(partitionText + statsText)
	walkScript   = newScript(walkText)
)

// all is what Load loads; the other scripts of the package add themselves.
var all = []*script{reportScript, evictScript, clearScript, statsScript, walkScript}

// Now stands for the time at which a script runs, where a call takes a time.
const Now int64 = -1

// MaxHashes is how many hashes one Report or Evict takes.
const MaxHashes = 500
