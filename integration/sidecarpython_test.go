package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/scripts"
	"inferencecache.io/lookuptier/store"
)

// exportedScripts is the directory that `lookupctl scripts` writes.
func exportedScripts(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scripts")
	out, err := exec.Command(pod.Binary(t, "lookupctl"), "scripts", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	for name, text := range scripts.Texts() {
		got, err := os.ReadFile(filepath.Join(dir, name+".lua"))
		require.NoError(t, err)
		require.Equal(t, text, string(got), name)
	}
	return dir
}

// pythonSidecar is examples/python-sidecar/sidecar.py at work.
type pythonSidecar struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPythonSidecar(t testing.TB, scripts, url string, flags ...string) *pythonSidecar {
	t.Helper()
	s := &pythonSidecar{t: t, cmd: exec.Command(rig.RequirePython(t, "redis"), append([]string{"-B", "../examples/python-sidecar/sidecar.py",
		"--redis", url, "--scripts", scripts, "--tenant-id", "t", "--model-id", model, "--hash-scheme", scheme}, flags...)...)}
	s.cmd.Stderr = os.Stderr
	var err error
	s.in, err = s.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewReader(out)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	})
	return s
}

func (s *pythonSidecar) tell(event map[string]any, answer string) {
	s.t.Helper()
	line, err := json.Marshal(event)
	require.NoError(s.t, err)
	_, err = s.in.Write(append(line, '\n'))
	require.NoError(s.t, err)
	got, err := s.out.ReadString('\n')
	require.NoError(s.t, err)
	require.Equal(s.t, answer, strings.TrimSpace(got))
}

// prompt is n tokens that no other seed shares.
func prompt(seed, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(seed*100_000 + i)
	}
	return out
}

// TestASidecarInPythonIsMatchedByALookup drives the example of docs/writing-to-redis.md through a
// store, a removal, lost scripts, a lost Redis, a lapsed lease and a retirement.
func TestASidecarInPythonIsMatchedByALookup(t *testing.T) {
	t.Parallel()
	dir := exportedScripts(t)
	// As a user that may do what a sidecar needs, and no more.
	rules := store.SidecarACL(ranking.Scope{Tenant: "t", Model: model}, 1)
	r := rig.Standalone(t, rig.WithACL("user kvsidecar on >secret "+strings.Join(rules, " ")))
	p := pod.Start(t, "--redis", r.URL())
	url := r.URLAs("kvsidecar", "secret")
	s := startPythonSidecar(t, dir, url, "--replica-id", "py", "--lease", "2")
	type event = map[string]any
	eventually := func(what string, tokens []uint32, adapter, replica string, matched int) {
		t.Helper()
		rig.Eventually(t, settleLimit, what, hinted(t, p, model, tokens, adapter, replica, matched))
	}

	long := prompt(1, 16*700) // two calls' worth of blocks
	s.tell(event{"store": event{"tokens": long}}, "ok 700")
	eventually("a stored prompt", long, "", "py", 16*700)
	s.tell(event{"store": event{"tokens": prompt(2, 160), "adapter": "french"}}, "ok 710")
	eventually("an adapter's prompt", prompt(2, 160), "french", "py", 160)
	require.NoError(t, hinted(t, p, model, prompt(2, 160), "", "", 0)())
	s.tell(event{"remove": event{"tokens": long, "keep": 100}}, "ok 110")
	eventually("what is left of it", long, "", "py", 1600)
	s.tell(event{"stats": event{"hit_rate": 0.5, "pressure": 0.25, "memory_bytes": 4096}}, "ok 110")
	rig.Eventually(t, settleLimit, "its state", func() error {
		state, err := p.Client.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: model})
		if err != nil {
			return err
		}
		if state.GetSummary().GetTotalPrefixes() != 110 || len(state.GetReplicas()) != 1 || state.GetReplicas()[0].GetCacheMemoryBytes() != 4096 {
			return fmt.Errorf("%v", state)
		}
		return nil
	})

	// The lease is renewed by itself: it outlives several of its terms, without an event.
	time.Sleep(5 * time.Second)
	require.NoError(t, hinted(t, p, model, long, "", "py", 1600)())

	// Scripts that Redis does not know any more, in the middle of a pipeline.
	require.NoError(t, r.Client().ScriptFlush(t.Context()).Err())
	s.tell(event{"store": event{"tokens": prompt(3, 160)}}, "ok 120")
	eventually("a store after SCRIPT FLUSH", prompt(3, 160), "", "py", 160)

	// A Redis that forgot everything, found out by the lease alone.
	require.NoError(t, r.Client().FlushAll(t.Context()).Err())
	eventually("everything written again", long, "", "py", 1600)
	eventually("everything written again", prompt(2, 160), "french", "py", 160)

	// Cleared, and filled again.
	s.tell(event{"clear": true}, "ok 0")
	eventually("a cleared cache", long, "", "", 0)
	s.tell(event{"store": event{"tokens": prompt(4, 160)}}, "ok 10")
	eventually("a store after it", prompt(4, 160), "", "py", 160)

	// Killed: gone within its lease. Its successor finds nothing of it.
	require.NoError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	eventually("a lapsed lease", prompt(4, 160), "", "", 0)
	s = startPythonSidecar(t, dir, url, "--replica-id", "py", "--lease", "20")
	s.tell(event{"store": event{"tokens": prompt(5, 160)}}, "ok 10")
	eventually("a successor's store", prompt(5, 160), "", "py", 160)
	require.NoError(t, hinted(t, p, model, prompt(4, 160), "", "", 0)())

	// The end of its input: retired long before the lease ends.
	require.NoError(t, s.in.Close())
	require.NoError(t, s.cmd.Wait())
	eventually("a retired replica", prompt(5, 160), "", "", 0)
	state, err := p.Client.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: model})
	require.NoError(t, err)
	require.Empty(t, state.GetReplicas())
	require.Zero(t, state.GetSummary().GetTotalPrefixes())
}

// TestPythonsFingerprintsAreOurs covers every length that XXH3 treats in its own way.
func TestPythonsFingerprintsAreOurs(t *testing.T) {
	t.Parallel()
	const program = `
import sys
sys.path.insert(0, "../examples/python-sidecar")
import fingerprint
for line in sys.stdin:
    size, *tokens = map(int, line.split())
    print("".join(fingerprint.on_the_wire(h).hex() for h in fingerprint.prefix_hashes(tokens, size)), flush=True)
`
	var in, want strings.Builder
	for _, size := range []int{1, 2, 3, 4, 8, 16, 24, 32, 33, 48, 60, 61, 64, 128, 256, 300, 512} {
		tokens := make([]uint32, 3*size+size/2)
		for i := range tokens {
			tokens[i] = uint32(i*2_654_435_761 + size)
		}
		fmt.Fprint(&in, size)
		for _, token := range tokens {
			fmt.Fprint(&in, " ", token)
		}
		fmt.Fprintln(&in)
		fmt.Fprintf(&want, "%x\n", ranking.AppendFingerprints(nil, nil, tokens, size))
	}
	cmd := exec.Command(rig.RequirePython(t, "redis"), "-B", "-c", program)
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, want.String(), string(out))
}
