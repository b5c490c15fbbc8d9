package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// compose is what our tests look at in compose.yaml.
type compose struct {
	Services map[string]struct {
		Build       struct{ Target string }
		Command     []string
		Environment map[string]string
		ReadOnly    bool `json:"read_only"`
	}
	Configs map[string]struct{ Content string }
}

// variable with its default: ${NAME:-default}.
var variable = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

func readCompose(t *testing.T) compose {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	var file compose
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, s := range file.Services {
		for i, arg := range s.Command {
			s.Command[i] = variable.ReplaceAllString(arg, "$1")
		}
	}
	return file
}

func TestComposeStartsCommandsWithFlagsThatTheyHave(t *testing.T) {
	seen := 0
	for name, s := range readCompose(t).Services {
		if s.Build.Target == "" {
			continue
		}
		seen++
		require.Equal(t, name, s.Build.Target)
		require.True(t, s.ReadOnly, name)
		if name != "kvpublish" { // it has no --version; the next test runs it
			accepts(t, name, s.Command, s.Environment)
		}
	}
	require.Equal(t, 3, seen)
}

// What compose.yaml says at its top, with its own command lines, on loopback.
func TestComposesEngineIsFoundByALookup(t *testing.T) {
	file := readCompose(t)
	dir := t.TempDir()
	socket, events := filepath.Join(dir, "redis.sock"), filepath.Join(dir, "events.jsonl")
	require.NoError(t, os.WriteFile(events, []byte(file.Configs["events"].Content), 0o600))
	start(t, "redis-server", "", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	require.Eventually(t, func() bool { _, err := os.Stat(socket); return err == nil }, generous, 20*time.Millisecond, "redis-server")

	publish, replay := freePort(t), freePort(t)
	local := strings.NewReplacer("redis://redis:6379/0", "unix://"+socket, "/etc/events.jsonl", events, "/etc/lookupd/policies", "base/policies",
		"*:5557", "127.0.0.1:"+publish, "*:5558", "127.0.0.1:"+replay, "kvpublish:5557", "127.0.0.1:"+publish, "kvpublish:5558", "127.0.0.1:"+replay,
		"=:8081", "=127.0.0.1:0")
	args := func(service string, more ...string) []string {
		var list []string
		for _, arg := range file.Services[service].Command {
			list = append(list, local.Replace(arg))
		}
		return append(list, more...)
	}
	start(t, binary(t, "kvpublish"), "", args("kvpublish")...)
	start(t, binary(t, "kvsidecar"), "http", args("kvsidecar")...)
	pod := start(t, binary(t, "lookupd"), "grpc", args("lookupd", "--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0")...)

	said := ""
	defer func() { t.Log(said) }()
	require.Eventually(t, func() bool {
		ask := exec.Command("sh", "-c", "seq 1 128 | "+binary(t, "lookupctl")+" lookup --server "+pod+" --tenant default --model llama --scheme vllm --tokens -")
		out, _ := ask.CombinedOutput()
		said = string(out)
		return strings.HasPrefix(said, "PREFIX_MATCH: 1 replica") && strings.Contains(said, "engine-1")
	}, generous, 200*time.Millisecond, "no hint")
}
