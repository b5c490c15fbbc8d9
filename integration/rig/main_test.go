package rig_test

import (
	"testing"

	"go.uber.org/goleak"
)

// go-redis probes an address that refused connections once a second, and finds
// out up to a second late that its pool is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
