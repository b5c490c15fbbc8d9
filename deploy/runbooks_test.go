package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fence    = regexp.MustCompile("(?s)```\n(.*?)```")
	inline   = regexp.MustCompile("`(lookupctl [^`]+)`")
	longFlag = regexp.MustCompile(`--[a-z][a-z-]*`)
	ourName  = regexp.MustCompile(`\b(inferencecache|kvsidecar)_[a-z_]+\b`)
	link     = regexp.MustCompile(`\]\(([a-z-]+\.md)\)`)
)

func everyRunbook(t *testing.T, check func(t *testing.T, page string)) {
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, path := range pages {
		t.Run(filepath.Base(path), func(t *testing.T) {
			page, err := os.ReadFile(path)
			require.NoError(t, err)
			check(t, string(page))
		})
	}
}

// At 3 a.m. nobody wants to find out that a command of the runbook does not exist.
func TestRunbooksUseCommandsAndFlagsThatLookupctlHas(t *testing.T) {
	help := map[string]string{}
	everyRunbook(t, func(t *testing.T, page string) {
		var lines []string
		for _, block := range fence.FindAllStringSubmatch(page, -1) {
			lines = append(lines, strings.Split(block[1], "\n")...)
		}
		for _, code := range inline.FindAllStringSubmatch(page, -1) {
			lines = append(lines, code[1])
		}
		for _, line := range lines {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "lookupctl" {
				continue
			}
			sub := words[1:2]
			if sub[0] == "policy" {
				sub = words[1:3]
			}
			name := strings.Join(sub, " ")
			if _, ok := help[name]; !ok {
				out, err := exec.Command(binary(t, "lookupctl"), append(sub, "--help")...).CombinedOutput()
				require.NoError(t, err, "lookupctl has no %s:\n%s", name, out)
				help[name] = string(out)
			}
			for _, flag := range longFlag.FindAllString(line, -1) {
				require.Contains(t, help[name], flag, line)
			}
		}
	})
}

func TestRunbooksNameMetricsThatAreExported(t *testing.T) {
	e := everythingExported(t)
	everyRunbook(t, func(t *testing.T, page string) {
		for _, name := range ourName.FindAllString(page, -1) {
			_, plain := e[name]
			_, histogram := e[name+"_bucket"]
			require.True(t, plain || histogram || strings.HasSuffix(name, "_"), "nothing exports %s", name)
		}
	})
}

func TestRunbooksLinkToPagesThatExist(t *testing.T) {
	everyRunbook(t, func(t *testing.T, page string) {
		for _, target := range link.FindAllStringSubmatch(page, -1) {
			require.FileExists(t, filepath.Join("../docs/runbooks", target[1]))
		}
		for _, target := range regexp.MustCompile(`\b(?:docs|deploy)/[a-z/-]+(?:\.md|\.conf)?`).FindAllString(page, -1) {
			if target == "deploy/lookupd" {
				continue // a Deployment, for kubectl
			}
			_, err := os.Stat("../" + strings.TrimSuffix(target, "/"))
			require.NoError(t, err)
		}
	})
}
