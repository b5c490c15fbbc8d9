// Package pod runs the real lookupd for tests.
package pod

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/rig"
)

const (
	startLimit = 60 * time.Second // to listen and to be ready, on a busy machine
	stopLimit  = 30 * time.Second // to leave after SIGTERM
)

// Pod is a running lookupd.
type Pod struct {
	t    testing.TB
	proc *rig.Process
	once sync.Once

	// GRPCAddr and HTTPAddr are host:port.
	GRPCAddr, HTTPAddr string
	// EmbeddedURL is where the embedded store listens; empty with --redis.
	EmbeddedURL string
	// Conn is a connection to GRPCAddr, closed when the test ends; Client speaks on it.
	Conn   *grpc.ClientConn
	Client pb.InferenceCacheClient
}

// Start runs lookupd with these flags, added to those that put its listeners on
// free loopback ports, and waits until it is ready. When the test ends the pod
// must leave by itself, with status 0 and without having seen a data race.
func Start(t testing.TB, flags ...string) *Pod {
	t.Helper()
	p := StartUnready(t, flags...)
	p.WaitReady()
	return p
}

// StartUnready is Start that waits only until the pod listens.
func StartUnready(t testing.TB, flags ...string) *Pod {
	t.Helper()
	p := &Pod{t: t, proc: Launch(t, flags...)}
	rig.Eventually(t, startLimit, "lookupd listening", p.findAddresses)
	conn, err := grpc.NewClient(p.GRPCAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("connecting to lookupd: %v", err)
	}
	p.Conn, p.Client = conn, pb.NewInferenceCacheClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		p.Stop()
	})
	return p
}

// Launch runs lookupd and waits for nothing: for tests in which it refuses to start.
func Launch(t testing.TB, flags ...string) *rig.Process {
	t.Helper()
	log := filepath.Join(t.TempDir(), "lookupd.log")
	rig.LogOnFailure(t, "lookupd", log)
	args := append([]string{
		"--grpc-bind-address", "127.0.0.1:0", "--http-bind-address", "127.0.0.1:0", "--log-format", "json", "--drain", "5s",
	}, flags...)
	proc, err := rig.Start(t, "lookupd", log, Binary(t, "lookupd"), args, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out := proc.Output(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") || strings.Contains(out, "fatal error:") {
			t.Errorf("lookupd raced or panicked; its whole output:\n%s", out)
		}
	})
	return proc
}

// Stop ends the pod with SIGTERM and checks that it leaves in order. Later calls do nothing.
func (p *Pod) Stop() {
	p.once.Do(func() {
		if !p.proc.Running() {
			p.t.Errorf("lookupd had ended before its time, with status %d", p.proc.ExitCode())
			return
		}
		if !p.proc.Stop(stopLimit) {
			p.t.Errorf("lookupd was still there %v after SIGTERM", stopLimit)
		} else if code := p.proc.ExitCode(); code != 0 {
			p.t.Errorf("lookupd left with status %d", code)
		}
	})
}

// Process is the pod's process.
func (p *Pod) Process() *rig.Process { return p.proc }

// findAddresses reads from the log where the pod listens.
func (p *Pod) findAddresses() error {
	running := p.proc.Running() // before reading, so that an ended pod's output is whole
	lines := bufio.NewScanner(strings.NewReader(p.proc.Output()))
	for lines.Scan() {
		var line struct {
			Msg      string `json:"msg"`
			GRPC     string `json:"grpc"`
			HTTP     string `json:"http"`
			RedisURL string `json:"redis_url"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		if line.RedisURL != "" {
			p.EmbeddedURL = line.RedisURL
		}
		if line.Msg == "listening" {
			p.GRPCAddr, p.HTTPAddr = line.GRPC, line.HTTP
			return nil
		}
	}
	if !running {
		p.t.Fatalf("lookupd ended with status %d instead of listening:\n%s", p.proc.ExitCode(), p.proc.Output())
	}
	return errors.New("no line in its log says so")
}

// Ready is nil if /readyz says so, else what it says.
func (p *Pod) Ready() error {
	body, status, err := p.get("/readyz")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%d: %s", status, strings.TrimSpace(body))
	}
	return nil
}

// WaitReady waits for Ready.
func (p *Pod) WaitReady() {
	p.t.Helper()
	rig.Eventually(p.t, startLimit, "lookupd being ready", p.Ready)
}

// Metric is the sum of a metric's series whose labels contain all of these
// pairs, written as name="value"; 0 if there is none.
func (p *Pod) Metric(name string, labels ...string) float64 {
	p.t.Helper()
	body, status, err := p.get("/metrics")
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("metrics: status %d, %v", status, err)
	}
	return sumSeries(body, name, labels)
}

func (p *Pod) get(path string) (body string, status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.HTTPAddr+path, nil)
	if err != nil {
		return "", 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), resp.StatusCode, err
}
