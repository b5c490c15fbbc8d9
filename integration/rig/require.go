package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const (
	// EnvServer names another redis-server (or valkey-server) binary than the one on PATH.
	EnvServer = "LOOKUPTIER_REDIS_SERVER"
	// EnvRequire, set to 1, turns a missing redis-server into a failure. CI sets it.
	EnvRequire = "LOOKUPTIER_REQUIRE_REDIS"
	// EnvPython names another Python than /usr/bin/python3 and the one on PATH.
	EnvPython = "LOOKUPTIER_PYTHON"
	// EnvRequirePython, set to 1, turns a missing Python module into a failure.
	EnvRequirePython = "LOOKUPTIER_REQUIRE_PYTHON"
)

// Require returns the path of redis-server. Where there is none the test fails
// if EnvRequire is 1, and is otherwise skipped with what to install: a test
// that did not run must be seen not to have run.
func Require(t testing.TB) string {
	t.Helper()
	path, err := Find()
	if err != nil {
		absent(t, EnvRequire, err)
	}
	return path
}

// RequirePython returns the path of a Python that has the modules, which Debian packages
// as python3-NAME. Where there is none it does as Require does.
func RequirePython(t testing.TB, modules ...string) string {
	t.Helper()
	for _, path := range []string{os.Getenv(EnvPython), "/usr/bin/python3", "python3"} {
		if path != "" && exec.Command(path, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
			return path
		}
	}
	absent(t, EnvRequirePython, fmt.Errorf("this test needs a Python with %s and found none: install them "+
		"(Debian, Ubuntu: apt-get install python3-%s) or point %s at one", strings.Join(modules, " and "), strings.Join(modules, " python3-"), EnvPython))
	return ""
}

// absent is the only place that skips a test.
func absent(t testing.TB, demanded string, err error) {
	t.Helper()
	if os.Getenv(demanded) == "1" {
		t.Fatalf("%v (and %s=1 demands it)", err, demanded)
	}
	t.Skipf("NOT RUN: %v", err)
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
