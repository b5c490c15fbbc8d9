package soak

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/pod"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long to break things; 0 = a smoke test of some seconds")
	seed     = flag.Uint64("seed", 0, "of the faults and the traffic; 0 = a new one, which is printed")
	topology = flag.String("topology", "standalone", "standalone, or cluster: three masters and three shards")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(pod.Main(m))
}

// TestTheTierSurvivesEverythingThatBreaks wants, for as long as -soak says:
//
//   - no lookup without an answer, but those that a killed pod took with it;
//   - no reason that the contract does not know, and no pod that panics or ends by itself;
//   - no lookup that takes much longer than its deadline;
//   - of the pod that lives throughout, no more goroutines and not much more memory at the end than
//     after the warm-up, and of the others no more than that either;
//   - within a minute of the last fault, an index that is the engines' caches block by block, with
//     serving counts that a recount bears out, and pods that answer from it.
func TestTheTierSurvivesEverythingThatBreaks(t *testing.T) {
	long, warmUp, rest, requests := *soakFor, 45*time.Second, 20*time.Second, 800
	if long == 0 {
		long, warmUp, rest, requests = 5*time.Second, 2*time.Second, time.Second, 200
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d, %s, faults for %v: repeat with -seed %d -soak %v -topology %s", *seed, *topology, long, *seed, long, *topology)

	s := newTier(t, *topology, *seed, requests)
	s.startTraffic()
	s.doing("warming up")
	stopProgress := s.progress()
	defer stopProgress()
	time.Sleep(warmUp)
	t.Logf("%d prompts of %d blocks; an engine holds a third of them, one that reports over gRPC a fifth", len(s.world.prompts), len(s.world.blocks))
	baseline := s.measure()
	t.Logf("baseline: %v", baseline)

	faults := newSaboteur(s, *seed)
	for end := time.Now().Add(long); time.Now().Before(end); {
		faults.round(end)
	}
	faults.mendAll()
	s.doing("recovering")
	s.waitReady()
	time.Sleep(rest)
	after := s.measure()

	flushed := s.stopProducers()
	took := s.settle()
	s.stopGateways()
	stopProgress()
	s.wantRightAnswers()

	for _, line := range s.gateways.summary() {
		t.Log(line)
	}
	for _, line := range faults.summary() {
		t.Log(line)
	}
	t.Logf("pods after warm-up: %v", baseline)
	t.Logf("pods at the end:    %v", after)
	t.Logf("the index was the engines' caches, %d blocks of %d replicas, %v after the last report was acknowledged, which took %v from when the engines stopped",
		s.heldBlocks(), len(s.producers()), took.Round(time.Millisecond), flushed.Round(time.Millisecond))
	s.gateways.want(t)
	wantNoGrowth(t, baseline, after, *soakFor > 0)
	require.Positive(t, faults.done())
}
