package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// binary is lookupd, built once for all tests.
var binary string

// buildFlags make it; with the race detector if the tests have it.
var buildFlags = []string{"build", "-ldflags", "-X main.version=v9.9.9-test"}

// generous is how long a test waits for what should happen at once.
const generous = 60 * time.Second

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lookupd-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "lookupd")
	build := exec.Command("go", append(buildFlags, "-o", binary, ".")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building lookupd: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// process is a running lookupd.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	grpc   string // address
	http   string // URL
	conn   *grpc.ClientConn
	client pb.InferenceCacheClient

	exited chan struct{} // closed when it has
	mu     sync.Mutex
	lines  []string
}

// launch starts lookupd on free ports and waits until it listens.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return launchWith(t, nil, args...)
}

// launchWith is launch with more of an environment, each NAME=value.
func launchWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := spawnWith(t, env, append([]string{"--grpc-bind-address", "127.0.0.1:0", "--http-bind-address", "127.0.0.1:0"}, args...)...)
	line := p.waitLog("listening")
	p.grpc, p.http = line["grpc"].(string), "http://"+line["http"].(string)
	conn, err := grpc.NewClient("passthrough:///"+p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	p.conn, p.client = conn, pb.NewInferenceCacheClient(conn)
	return p
}

// spawn starts lookupd and collects what it logs.
func spawn(t *testing.T, args ...string) *process {
	t.Helper()
	return spawnWith(t, nil, args...)
}

func spawnWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.exited)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Log(p.log())
		}
	})
	return p
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// waitLog returns the first log line whose message starts with msg.
func (p *process) waitLog(msg string) (found map[string]any) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range p.lines {
			var line map[string]any
			if json.Unmarshal([]byte(l), &line) != nil {
				continue
			}
			if text, _ := line["msg"].(string); strings.HasPrefix(text, msg) {
				found = line
				return true
			}
		}
		return false
	}, generous, 5*time.Millisecond, "no line %q in:\n%s", msg, p.log())
	return found
}

// waitExit returns the exit code.
func (p *process) waitExit() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(generous):
		p.t.Fatalf("still running:\n%s", p.log())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal() { require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM)) }

// get fetches a path of the HTTP port; 0 if nothing answers.
func (p *process) get(path string) (code int, body string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http+path, nil)
	require.NoError(p.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(raw)
}

func (p *process) waitReady() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		code, _ := p.get("/readyz")
		return code == http.StatusOK
	}, generous, 10*time.Millisecond, p.log())
}

// metric is the value of one series as /metrics prints it, "" if there is none.
func (p *process) metric(series string) string {
	p.t.Helper()
	_, body := p.get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}

func lookup(tenant string, hashes ...string) *pb.LookupRouteRequest {
	req := &pb.LookupRouteRequest{TenantId: tenant, ModelId: "m", HashScheme: "s"}
	for _, h := range hashes {
		req.BlockHashes = append(req.BlockHashes, []byte(h))
		req.BlockTokenCounts = append(req.BlockTokenCounts, 64)
	}
	return req
}

// ask looks up and returns the reason code.
func (p *process) ask(req *pb.LookupRouteRequest) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	resp, err := p.client.LookupRoute(ctx, req)
	require.NoError(p.t, err)
	return resp.GetReasonCode()
}

// report indexes a chain of 64-token blocks.
func (p *process) report(tenant, replica string, hashes ...string) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	stream, err := p.client.ReportCacheState(ctx)
	require.NoError(p.t, err)
	q := lookup(tenant, hashes...)
	_ = stream.Send(&pb.CacheStateUpdate{TenantId: tenant, ModelId: "m", HashScheme: "s", ReplicaId: replica,
		Prefixes: []*pb.PrefixEntry{{BlockHashes: q.BlockHashes, BlockTokenCounts: q.BlockTokenCounts}}})
	_, err = stream.CloseAndRecv()
	return err
}
