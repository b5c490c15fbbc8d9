package soak

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
)

// lookupPod is a lookupd that keeps its addresses over restarts.
type lookupPod struct {
	t                  testing.TB
	grpcAddr, httpAddr string
	flags              []string
	proc               *rig.Process
	ended              bool // on purpose, by a fault
}

func startPod(t testing.TB, flags ...string) *lookupPod {
	t.Helper()
	p := &lookupPod{t: t, grpcAddr: rig.FreeAddr(t), httpAddr: rig.FreeAddr(t)}
	p.flags = append([]string{"--grpc-bind-address", p.grpcAddr, "--http-bind-address", p.httpAddr}, flags...)
	p.start()
	return p
}

func (p *lookupPod) start() {
	p.t.Helper()
	p.proc, p.ended = pod.Launch(p.t, p.flags...), false
}

func (p *lookupPod) ready() error {
	if !p.proc.Running() {
		return fmt.Errorf("it ended with status %d", p.proc.ExitCode())
	}
	_, err := p.get("/readyz")
	return err
}

func (p *lookupPod) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.httpAddr+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d: %s", path, resp.StatusCode, body)
	}
	return string(body), err
}

// figures are what must not grow.
type figures struct{ goroutines, resident, heap, connections float64 }

func (f figures) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f MiB resident, %.0f MiB heap, %.0f descriptors", f.goroutines, f.resident/(1<<20), f.heap/(1<<20), f.connections)
}

func (p *lookupPod) figures() (figures, error) {
	page, err := p.get("/metrics")
	if err != nil {
		return figures{}, err
	}
	value := func(name string) float64 {
		for line := range strings.Lines(page) {
			if rest, ok := strings.CutPrefix(line, name+" "); ok {
				v, parseErr := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				if parseErr != nil {
					err = parseErr
				}
				return v
			}
		}
		err = fmt.Errorf("no metric %s", name)
		return 0
	}
	return figures{value("go_goroutines"), value("process_resident_memory_bytes"), value("go_memstats_heap_alloc_bytes"), value("process_open_fds")}, err
}

// measure takes the median of some samples of each pod, under traffic.
func (s *tier) measure() []figures {
	s.t.Helper()
	all := make([]figures, len(s.pods))
	for i, p := range s.pods {
		var samples [4][]float64
		for range 7 {
			f, err := p.figures()
			if err != nil {
				s.t.Fatalf("metrics of pod %d: %v", i, err)
			}
			for n, v := range []float64{f.goroutines, f.resident, f.heap, f.connections} {
				samples[n] = append(samples[n], v)
			}
			time.Sleep(200 * time.Millisecond)
		}
		median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
		all[i] = figures{median(samples[0]), median(samples[1]), median(samples[2]), median(samples[3])}
	}
	return all
}

// wantNoGrowth allows for connections that a pool opened and for a heap between two collections. Only
// pod 0 is the same process as before; the others are held to what it had. Some seconds are too short for memory
// to say anything: its cache is still filling.
func wantNoGrowth(t testing.TB, before, after []figures, memory bool) {
	t.Helper()
	for i, f := range after {
		if limit := before[0].goroutines + 40; f.goroutines > limit {
			t.Errorf("pod %d has %.0f goroutines; after the warm-up pod 0 had %.0f", i, f.goroutines, before[0].goroutines)
		}
		if limit := before[0].resident*1.25 + 32<<20; memory && f.resident > limit {
			t.Errorf("pod %d has %.0f MiB resident; after the warm-up pod 0 had %.0f", i, f.resident/(1<<20), before[0].resident/(1<<20))
		}
		if limit := before[0].connections + 40; f.connections > limit {
			t.Errorf("pod %d has %.0f descriptors open; after the warm-up pod 0 had %.0f", i, f.connections, before[0].connections)
		}
	}
}
