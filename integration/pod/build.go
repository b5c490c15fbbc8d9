package pod

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const module = "inferencecache.io/lookuptier"

var (
	buildMu  sync.Mutex
	buildDir string                // made at the first build, removed by Main
	built    = map[string]string{} // command → path
)

// Main is what TestMain of a package that starts commands calls: it runs the
// tests, removes the binaries and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	buildMu.Lock()
	defer buildMu.Unlock()
	if buildDir != "" {
		if err := os.RemoveAll(buildDir); err != nil {
			fmt.Fprintln(os.Stderr, "removing test binaries:", err)
			return max(code, 1)
		}
	}
	return code
}

// Binary builds cmd/<command> once and returns its path. A test under the race
// detector gets a command under the race detector.
func Binary(t testing.TB, command string) string {
	t.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	if path, ok := built[command]; ok {
		return path
	}
	if buildDir == "" {
		dir, err := os.MkdirTemp("", "lookuptier-integration-")
		if err != nil {
			t.Fatalf("directory for binaries: %v", err)
		}
		buildDir = dir
	}
	path := filepath.Join(buildDir, command)
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, module+"/cmd/"+command)...).CombinedOutput()
	if err != nil {
		t.Fatalf("building %s: %v\n%s", command, err, out)
	}
	built[command] = path
	return path
}
