package main

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inferencecache.io/lookuptier/doctor"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// testMain removes the binaries that tests built, before goroutines are counted.
type testMain struct{ m *testing.M }

func (t testMain) Run() int { return pod.Main(t.m) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(testMain{m}) }

// process runs the real lookupctl.
func process(t *testing.T, stdin, line string) outcome {
	t.Helper()
	cmd := exec.Command(pod.Binary(t, "lookupctl"), strings.Fields(line)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errs.String()}
}

func TestDoctorAndExplainBesideARealPod(t *testing.T) {
	server := rig.Standalone(t)
	p := pod.Start(t, "--redis", server.URL())
	tier := " --redis " + server.URL() + " --server " + p.GRPCAddr

	o := process(t, ids16, "report --server "+p.GRPCAddr+keys+" --replica engine-0 --hit-rate 0.5 --tokens -")
	require.Equal(t, exitOK, o.code, o.err)
	o = process(t, ids16, "explain"+tier+keys+" --tokens -")
	require.Equal(t, exitOK, o.code, o.err)
	require.Contains(t, o.out, "AFFINITY_HINT: engine-0\n- No replica matched minimumMatchedTokens 64: the most is 16.")
	require.Contains(t, o.out, "answers the same.")

	o = process(t, "", "doctor --redis "+server.URL()+" --pods "+p.HTTPAddr+" --grpc "+p.GRPCAddr)
	require.Equal(t, exitOK, o.code, o.out+o.err)
	require.Contains(t, o.out, "Nothing is wrong: 0 failed, 0 warned")
	require.Contains(t, o.out, "pods.cache")

	server.Kill()
	rig.Eventually(t, podLimit, "the pod misses Redis", func() error {
		o = process(t, "", "doctor -o json --redis "+server.URL()+" --pods "+p.HTTPAddr)
		if o.code != exitFailure || !strings.Contains(o.out, "pods.ready") || !strings.Contains(o.out, "the pod is not ready") {
			return errors.New(o.out)
		}
		return nil
	})
	require.Empty(t, o.err, "nothing stands between the findings")
	report := decode[doctor.Report](t, o.out)
	require.Equal(t, "redis.reachable", report.Findings[0].Check)

	require.Equal(t, exitUsage, process(t, "", "doctor").code)
	server.Restart() // for the pod to leave in peace
}
