package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// metric is one name that can be asked for.
type metric struct {
	labels []string
	series []map[string]string // labels of those that a fresh process has
}

// exported are all metrics by name: histograms by the names of their three kinds of series.
type exported map[string]metric

// fromRedisExporter are metrics of redis_exporter, which is not ours to run here.
var fromRedisExporter = []string{"redis_memory_used_bytes", "redis_memory_max_bytes", "redis_evicted_keys_total"}

// everythingExported is what the real lookupd and kvsidecar have on their /metrics, and what
// docs/metrics.md lists besides: series that come with the first event of their kind. That page is
// held to the registered metrics by a test of lookupd.
func everythingExported(t *testing.T) exported {
	t.Helper()
	e := exported{}
	for name, labels := range documented(t) {
		e.add(name, labels, nil)
	}
	for _, family := range scrapeAll(t) {
		labels := map[string]bool{}
		var series []map[string]string
		for _, m := range family.Metric {
			own := map[string]string{}
			for _, pair := range m.Label {
				own[pair.GetName()], labels[pair.GetName()] = pair.GetValue(), true
			}
			series = append(series, own)
		}
		names := []string{family.GetName()}
		if family.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{family.GetName() + "_bucket", family.GetName() + "_sum", family.GetName() + "_count"}
		}
		for _, name := range names {
			e.add(name, slices.Collect(maps.Keys(labels)), series)
		}
	}
	for _, name := range fromRedisExporter {
		e.add(name, nil, nil)
	}
	return e
}

func (e exported) add(name string, labels []string, series []map[string]string) {
	m := e[name]
	e[name] = metric{append(m.labels, labels...), append(m.series, series...)}
}

// documented are the rows of docs/metrics.md: name and labels.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ((?:`[a-z_]+`(?:, )?)*) ?\\|").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, rows)
	list := map[string][]string{}
	for _, row := range rows {
		labels := strings.FieldsFunc(row[2], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		list["inferencecache_"+row[1]] = labels
	}
	return list
}

// scrapeAll starts one lookup pod and one sidecar beside a real Redis, once, and reads their metrics.
func scrapeAll(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	scrapeOnce.Do(func() {
		dir, err := os.MkdirTemp("", "lookup-tier-scrape-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		socket := filepath.Join(dir, "redis.sock")
		start(t, "redis-server", "", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
		require.Eventually(t, func() bool { _, err := os.Stat(socket); return err == nil }, generous, 20*time.Millisecond, "redis-server")
		pod := start(t, binary(t, "lookupd"), "http", "--redis", "unix://"+socket, "--grpc-bind-address", "127.0.0.1:0", "--http-bind-address", "127.0.0.1:0", "--drain", "1s")
		side := start(t, binary(t, "kvsidecar"), "http", "--redis", "unix://"+socket, "--http-bind-address", "127.0.0.1:0",
			"--replica-id", "r", "--model-id", "m", "--tenant-id", "t", "--hash-scheme", "s")
		for _, at := range []string{pod, side} {
			families := scrape(t, at)
			require.NotEmpty(t, families)
			scrapeResult = append(scrapeResult, families...)
		}
	})
	require.NotEmpty(t, scrapeResult, "the first test that needed it could not scrape")
	return scrapeResult
}

var (
	scrapeOnce   sync.Once
	scrapeResult []*dto.MetricFamily
)

const generous = 60 * time.Second

// output of a process, read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs a command until the test ends. With a field, it returns what that field of a line of
// its log says, as soon as one has it.
func start(t *testing.T, command, field string, args ...string) string {
	t.Helper()
	run := exec.Command(command, args...)
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out output
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	t.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(generous, func() { _ = run.Process.Kill() })
		_ = run.Wait()
		late.Stop()
	})
	if field == "" {
		return ""
	}
	value := ""
	require.Eventually(t, func() bool {
		for line := range strings.Lines(out.String()) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil {
				if s, ok := fields[field].(string); ok {
					value = s
					return true
				}
			}
		}
		return false
	}, generous, 20*time.Millisecond, "%s: no %q in its log:\n%s", command, field, &out)
	return value
}

func scrape(t *testing.T, addr string) []*dto.MetricFamily {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	require.NoError(t, err)
	return slices.Collect(maps.Values(families))
}
