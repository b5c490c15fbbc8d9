package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// deployment is one way to run the tier.
type deployment struct {
	backend string // embedded, standalone or cluster
	cache   string // --cache
	shards  int
	pods    int      // with two, one takes the writes and the other answers
	files   []string // of scenarios
}

func (d deployment) String() string {
	return fmt.Sprintf("%s/cache %s/K=%d/%d pods", d.backend, d.cache, d.shards, d.pods)
}

// deployments has every combination. The embedded store is slow (an interpreter of
// Lua in Go, under the race detector), and what shards and a second pod do is the
// same code on every backend: there it plays the rules, and the worlds once per cache.
func deployments() []deployment {
	all := []string{"cold-start", "rules", "worlds"}
	var out []deployment
	for _, backend := range []string{"embedded", "standalone", "cluster"} {
		for _, cache := range []string{"on", "off"} {
			for _, shards := range []int{1, 4} {
				for _, pods := range []int{1, 2} {
					files := all
					if backend == "embedded" && shards*pods > 1 {
						files = all[:2]
					}
					out = append(out, deployment{backend, cache, shards, pods, files})
				}
			}
		}
	}
	return out
}

// TestConformance plays every scenario of the contract against the real lookupd
// in every deployment.
func TestConformance(t *testing.T) {
	for _, d := range deployments() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			scenarios := load(t, d.files)
			target := d.start(t, scenarios)
			fed := false
			for _, s := range scenarios {
				require.False(t, s.Fresh && fed, "%s wants an empty index: put it first", s.Name)
				if !s.Fresh && !fed {
					require.NoError(t, conformance.Report(t.Context(), target.Write, conformance.Stranger()))
					fed = true
				}
				t.Run(s.Name, func(t *testing.T) {
					require.NoError(t, s.Run(t.Context(), target), s.Why)
				})
			}
		})
	}
}

func load(t *testing.T, files []string) []conformance.Scenario {
	t.Helper()
	var all []conformance.Scenario
	for _, f := range files {
		s, err := conformance.Load(filepath.Join("testdata", "conformance", f+".json"))
		require.NoError(t, err)
		require.NotEmpty(t, s)
		all = append(all, s...)
	}
	return all
}

func (d deployment) start(t *testing.T, scenarios []conformance.Scenario) conformance.Target {
	t.Helper()
	policies := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(policies, "policies.yaml"), conformance.PolicyFile(scenarios), 0o600))
	flags := []string{
		"--policy-dir", policies,
		"--cache", d.cache,
		"--shards", strconv.Itoa(d.shards),
		// The scenarios are about answers; a busy machine must not turn one into TIMEOUT.
		"--lookup-timeout", "30s",
	}
	var writer *pod.Pod
	url := d.redis(t)
	if url == "" {
		writer = pod.Start(t, flags...)
		url = writer.EmbeddedURL
	} else {
		writer = pod.Start(t, append(flags, "--redis", url)...)
	}
	if d.pods == 1 {
		return conformance.Target{Write: writer.Client, Read: writer.Client}
	}
	reader := pod.Start(t, append(flags, "--redis", url)...)
	return conformance.Target{Write: writer.Client, Read: reader.Client, Patience: 5 * time.Second}
}

// redis starts the backend and returns its URL; empty = embedded.
func (d deployment) redis(t *testing.T) string {
	t.Helper()
	switch d.backend {
	case "standalone":
		return rig.Standalone(t).URL()
	case "cluster":
		return rig.Cluster(t, 3).URL()
	}
	return ""
}
