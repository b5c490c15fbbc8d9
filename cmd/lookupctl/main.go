// Command lookupctl is the operator's view of a lookup tier: it asks what a gateway
// would be told, changes what the index knows, and replays recorded traffic.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// version is set by the linker.
var version = "dev"

func main() {
	// Redis' client would write between our lines what our error says too.
	logging.Disable()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
