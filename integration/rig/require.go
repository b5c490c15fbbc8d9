package rig

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

const (
	// EnvServer names another redis-server (or valkey-server) binary than the one on PATH.
	EnvServer = "LOOKUPTIER_REDIS_SERVER"
	// EnvRequire, set to 1, turns a missing redis-server into a failure. CI sets it.
	EnvRequire = "LOOKUPTIER_REQUIRE_REDIS"
)

// Require returns the path of redis-server. Where there is none the test fails
// if EnvRequire is 1, and is otherwise skipped with what to install: a test
// that did not run must be seen not to have run.
func Require(t testing.TB) string {
	t.Helper()
	path, err := Find()
	if err == nil {
		return path
	}
	if os.Getenv(EnvRequire) == "1" {
		t.Fatalf("%v (and %s=1 demands it)", err, EnvRequire)
	}
	t.Skipf("NOT RUN: %v", err)
	return ""
}

// Find returns the path of redis-server, or an error that says how to get one.
func Find() (string, error) {
	name := os.Getenv(EnvServer)
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("this test needs a real redis-server 7.0 or newer and found none: install it "+
			"(Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis) or point %s at a binary: %w", EnvServer, err)
	}
	return path, nil
}
