package integration_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/integration/rig"
)

// BenchmarkTwentyEngines looks for the highest rate at which 20 engines, each with a kvsidecar of its own, keep up on one
// machine: publishers, sidecars and Redis share its cores. A step publishes for some seconds at an even rate; it
// is sustained if all has reached Redis half a second after the last batch and nothing was dropped on the way.
// Steps grow by half until one is not. Then every engine's cache is compared with the index, block by block.
//
//	go test -run '^$' -bench TwentyEngines -benchtime 1x -v ./integration
func BenchmarkTwentyEngines(b *testing.B) {
	for b.Loop() {
		l := newFleet(b, 20)
		var best *loadStep
		for rate := 4000.0; ; rate *= 1.5 {
			step := l.run(rate, 4*time.Second)
			b.Logf("%s", step)
			if !step.sustained {
				break
			}
			best = step
		}
		l.compare()
		require.NotNil(b, best, "not even the lowest rate was sustained")
		b.ReportMetric(best.events, "events/s")
		b.ReportMetric(best.blocks, "blocks/s")
		b.ReportMetric(best.lag.Seconds()*1000, "lag-ms")
		b.ReportMetric(best.redisCPU*100, "redis-cpu-%")
		b.ReportMetric(best.memory/(1<<20), "MB/sidecar")
	}
}

// fleet is the engines, their sidecars and their Redis.
type fleet struct {
	b       testing.TB
	redis   *rig.Server
	engines []*simEngine
	sides   []*sidecarProcess
	traffic []*prompts
	sent    []int // batches of each engine
}

func newFleet(b testing.TB, engines int) *fleet {
	l := &fleet{b: b, redis: rig.Standalone(b), sent: make([]int, engines)}
	for i := range engines {
		e := newSimEngine(b, 4000)
		e.salt = uint64(i) + 1
		l.engines = append(l.engines, e)
		l.sides = append(l.sides, startSidecar(b, l.redis.URL(), e, model, replicaOf(i)))
		l.traffic = append(l.traffic, newPrompts(b, uint64(i), 6000))
	}
	return l
}

func replicaOf(i int) string { return fmt.Sprintf("engine-%02d", i) }

// loadStep is what one rate did.
type loadStep struct {
	batches        int
	events, blocks float64 // a second, as published
	took, drained  time.Duration
	lag            time.Duration // the longest that a sidecar saw while batches came
	redisCPU       float64       // cores
	memory         float64       // bytes of the largest sidecar
	gaps           float64
	sustained      bool
}

func (s *loadStep) String() string {
	return fmt.Sprintf("%d batches in %v: %.0f events/s, %.0f blocks/s; longest lag %v, settled %v after the last; Redis %.0f %% of a core, largest sidecar %.0f MB, %.0f gaps; sustained: %v",
		s.batches, s.took.Round(10*time.Millisecond), s.events, s.blocks, s.lag.Round(100*time.Microsecond), s.drained.Round(time.Millisecond), 100*s.redisCPU, s.memory/(1<<20), s.gaps, s.sustained)
}

// run publishes so many batches a second, over all engines, for so long. What is published is made before.
func (l *fleet) run(rate float64, long time.Duration) *loadStep {
	s := &loadStep{}
	each := int(rate * long.Seconds() / float64(len(l.engines)))
	batches := make([][][]byte, len(l.engines))
	events, blocks := 0, 0
	for i, e := range l.engines {
		for len(batches[i]) < each {
			p := l.traffic[i]
			_, made := e.change(p.requests[p.next%len(p.requests)].Blocks)
			p.next++
			if len(made) == 0 {
				continue
			}
			batches[i] = append(batches[i], e.payload(time.Now(), made))
			for _, ev := range made {
				events++
				blocks += len(ev.([]any)[1].([]uint64))
			}
		}
		s.batches += each
		l.sent[i] += each
	}
	gaps, cpu, begin := l.sum("kvsidecar_gaps_total"), l.redisCPU(), time.Now()
	var publishers sync.WaitGroup
	for i, e := range l.engines {
		publishers.Go(func() {
			for n, payload := range batches[i] {
				// In small bursts, as a scheduler's steps come; a timer for each would cost more than the batch.
				if due := begin.Add(long * time.Duration(n) / time.Duration(each)); n%8 == 0 {
					time.Sleep(time.Until(due))
				}
				// The time stamp is the float64 behind two bytes of MessagePack.
				binary.BigEndian.PutUint64(payload[2:], math.Float64bits(float64(time.Now().UnixMicro())/1e6))
				e.pub.Publish(payload)
			}
		})
	}
	watched, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
				for _, side := range l.sides {
					s.lag = max(s.lag, time.Duration(side.metric("kvsidecar_event_lag_seconds")*1e9))
				}
			}
		}
	}()
	publishers.Wait()
	s.took = time.Since(begin)
	close(stop)
	<-watched
	rig.Eventually(l.b, settleLimit, "everything in Redis", func() error {
		for i, side := range l.sides {
			if n, pending := side.metric("kvsidecar_batches_total"), side.metric("kvsidecar_pending_changes"); int(n) < l.sent[i] || pending > 0 {
				return fmt.Errorf("engine %d: %.0f of %d batches, %.0f changes pending", i, n, l.sent[i], pending)
			}
		}
		return nil
	})
	s.drained = time.Since(begin) - s.took
	s.events, s.blocks = float64(events)/s.took.Seconds(), float64(blocks)/s.took.Seconds()
	s.redisCPU = (l.redisCPU() - cpu) / time.Since(begin).Seconds()
	s.gaps = l.sum("kvsidecar_gaps_total") - gaps
	for _, side := range l.sides {
		s.memory = max(s.memory, side.metric("process_resident_memory_bytes"))
	}
	s.sustained = s.gaps == 0 && s.drained < 500*time.Millisecond && s.took < long*11/10
	return s
}

func (l *fleet) sum(series string) float64 {
	sum := 0.0
	for _, side := range l.sides {
		sum += side.metric(series)
	}
	return sum
}

// redisCPU is how many seconds of CPU Redis has used.
func (l *fleet) redisCPU() float64 {
	l.b.Helper()
	info, err := l.redis.Client().Info(l.b.Context(), "cpu").Result()
	require.NoError(l.b, err)
	sum := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(l.b, err)
			sum += v
		}
	}
	return sum
}

func (l *fleet) compare() {
	l.b.Helper()
	held := heldInRedis(l.b, l.redis.Client(), model, "")
	blocks := 0
	for i, e := range l.engines {
		require.NoError(l.b, differsFrom(held, replicaOf(i), e, fingerprintsOf(l.traffic[i].requests)))
		blocks += e.cache.Len()
	}
	require.Zero(l.b, l.sum("kvsidecar_lost_batches_total"))
	l.b.Logf("%d blocks of %d engines compared: 0 differences", blocks, len(l.engines))
}
