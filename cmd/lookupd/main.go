// Command lookupd is a lookup pod: it tells gateways which engine replica holds a
// prompt's KV cache. It keeps nothing that it cannot lose; the index is in Redis.
package main

import (
	"os"

	"inferencecache.io/lookuptier/cmd/internal/redislog"
)

// version is set by the linker.
var version = "dev"

func main() {
	redislog.Install()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
