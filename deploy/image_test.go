package deploy

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// commands are all of cmd/: each has a target of its own in the Dockerfile.
var commands = []string{"kvpublish", "kvsidecar", "lookupctl", "lookupd"}

var built struct {
	once sync.Once
	dir  string
	out  []byte
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// binary is the path of a command that the Dockerfile's own build step made.
func binary(t *testing.T, command string) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "lookup-tier-image-"); built.err != nil {
			return
		}
		run := ""
		for _, i := range instructions(t) {
			if i.word == "RUN" && strings.Contains(i.rest, "go build") {
				run = i.rest
			}
		}
		require.Contains(t, run, "-o /out/ ./cmd/...")
		build := exec.Command("sh", "-euc", strings.Replace(run, "/out/", built.dir+"/", 1))
		build.Dir = ".."
		build.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH=", "VERSION=v1.2.3")
		built.out, built.err = build.CombinedOutput()
	})
	require.NoError(t, built.err, "%s", built.out)
	return filepath.Join(built.dir, command)
}

// instruction of the Dockerfile, with its continuation lines.
type instruction struct{ word, rest string }

func instructions(t *testing.T) []instruction {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	var list []instruction
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		list = append(list, instruction{word, strings.TrimSpace(rest)})
	}
	return list
}

func TestEveryCommandHasAnImageThatRunsItAsNobody(t *testing.T) {
	known := []string{"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT"}
	stages := map[string]map[string]string{}
	stage, targets := "", []string{}
	for _, i := range instructions(t) {
		require.Contains(t, known, i.word)
		if i.word == "FROM" {
			name := regexp.MustCompile(`^(.*) AS (\S+)$`).FindStringSubmatch(i.rest)
			require.NotNil(t, name, i.rest)
			stage = name[2]
			stages[stage] = map[string]string{"FROM": name[1]}
			if stage != "build" {
				targets = append(targets, stage)
			}
		} else if stage != "" {
			stages[stage][i.word] = i.rest
		}
	}
	require.Equal(t, "lookupd", targets[len(targets)-1], "the last one is what is built by default")
	slices.Sort(targets)
	require.Equal(t, commands, targets)
	mains, err := filepath.Glob("../cmd/*/main.go")
	require.NoError(t, err)
	require.Len(t, mains, len(commands))
	for i, main := range mains {
		require.Equal(t, commands[i], filepath.Base(filepath.Dir(main)))
	}
	for _, command := range commands {
		s := stages[command]
		require.Equal(t, "${RUNTIME}", s["FROM"])
		require.Equal(t, "65532:65532", s["USER"], "a number, so that Kubernetes can tell that it is not root")
		require.Equal(t, `["/`+command+`"]`, s["ENTRYPOINT"])
		require.Equal(t, "--from=build /out/"+command+" /"+command, s["COPY"])
	}
}

func TestTheImagesBuildGivesStaticBinariesThatKnowTheirVersion(t *testing.T) {
	for _, command := range commands {
		path := binary(t, command)
		file, err := elf.Open(path)
		require.NoError(t, err)
		for _, p := range file.Progs {
			require.NotEqual(t, elf.PT_INTERP, p.Type, "%s needs a dynamic linker, which the image lacks", command)
		}
		require.NoError(t, file.Close())
	}
	for _, command := range []string{"lookupd", "lookupctl", "kvsidecar"} {
		out, err := exec.Command(binary(t, command), "--version").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "v1.2.3")
	}
}

// What the image is built from must not be what .dockerignore leaves out.
func TestDockerignoreKeepsWhatCommandsAreBuiltFrom(t *testing.T) {
	text, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)
	ignored := strings.Fields(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(string(text), ""))
	list := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}} {{join .EmbedFiles \" \"}}{{end}}{{end}}", "./cmd/...")
	list.Dir = ".."
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		folder, err := filepath.Rel(root, fields[0])
		require.NoError(t, err)
		top, _, _ := strings.Cut(folder, string(filepath.Separator))
		require.NotContains(t, ignored, top)
		for _, embedded := range fields[1:] {
			require.NotContains(t, embedded, "testdata")
			require.NotEqual(t, ".md", filepath.Ext(embedded))
		}
	}
}
