// Package docs has no code: its tests hold the project's pages to the files that they name.
package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```")
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unlinked = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	file     = regexp.MustCompile("`((?:[a-z][a-z_]*/)+[a-z0-9_]+\\.(?:go|lua|md|yaml|jsonl|proto))`")
	test     = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	target   = regexp.MustCompile("(?m)^make ([a-z]+)(?:  |$)|`make ([a-z]+)`")
	row      = regexp.MustCompile("(?m)^\\| ((?:`[a-z/.]+`(?:, )?)+) \\|")
)

// files are those of the project whose names end so, with their text, as paths from here.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, suffix):
			text, err := os.ReadFile(path)
			found[path] = string(text)
			return err
		}
		return nil
	}))
	return found
}

// pages are all Markdown files, without what is in code blocks.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := files(t, ".md")
	require.Contains(t, found, "../README.md")
	for path, text := range found {
		found[path] = fenced.ReplaceAllString(text, "")
	}
	return found
}

// anchors are a page's headings as links name them.
func anchors(text string) (list []string) {
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		list = append(list, strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return list
}

func TestLinksLeadToAFileAndAHeadingThatExist(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			target := page
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(page), l[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, l[1])
			} else if l[2] != "" && !slices.Contains(anchors(all[target]), l[2]) {
				t.Errorf("%s links to %s#%s, and no heading there is called so", page, l[1], l[2])
			}
		}
	}
}

func TestEveryPageIsFoundFromTheReadme(t *testing.T) {
	all := pages(t)
	seen := map[string]bool{}
	var follow func(page string)
	follow = func(page string) {
		if seen[page] {
			return
		}
		seen[page] = true
		for _, l := range link.FindAllStringSubmatch(all[page], -1) {
			target := filepath.Join(filepath.Dir(page), l[1])
			if info, err := os.Stat(target); err == nil && info.IsDir() {
				for other := range all { // whoever opens a folder sees what is in it
					if filepath.Dir(other) == target {
						follow(other)
					}
				}
			} else if _, ok := all[target]; ok {
				follow(target)
			}
		}
	}
	follow("../README.md")
	for page := range all {
		if !strings.Contains(page, "testdata") && !seen[page] {
			t.Errorf("no chain of links leads from README.md to %s", page)
		}
	}
}

func TestFilesThatPagesNameExist(t *testing.T) {
	for page, text := range pages(t) {
		for _, f := range file.FindAllStringSubmatch(text, -1) {
			_, fromRoot := os.Stat(filepath.Join("..", f[1]))
			_, fromPage := os.Stat(filepath.Join(filepath.Dir(page), f[1]))
			if fromRoot != nil && fromPage != nil {
				t.Errorf("%s names %s, which is not there", page, f[1])
			}
		}
	}
}

func TestArchitectureHasEachFolderAndNoOther(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	require.NoError(t, err)
	table, _, _ := strings.Cut(string(text), "\n## The life of a lookup")
	named := map[string]bool{}
	for _, cells := range row.FindAllStringSubmatch(table, -1) {
		for _, name := range strings.Split(cells[1], ", ") {
			name = strings.Trim(name, "`")
			require.DirExists(t, filepath.Join("..", name))
			named[strings.Split(name, "/")[0]] = true
		}
	}
	entries, err := os.ReadDir("..")
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() && e.Name() != ".git" && e.Name() != "bin" && e.Name() != ".cache" {
			require.True(t, named[e.Name()], "ARCHITECTURE.md does not say what is in %s", e.Name())
		}
	}
}

// A test that was renamed leaves its name in the pages that tell what is proved.
func TestTestsThatPagesNameExist(t *testing.T) {
	code := strings.Join(slices.Collect(maps.Values(files(t, "_test.go"))), "\n")
	for page, text := range pages(t) {
		for _, name := range test.FindAllString(text, -1) {
			if !strings.Contains(code, "func "+name+"(") {
				t.Errorf("%s names %s, and no test is called so", page, name)
			}
		}
	}
}

func TestTargetsOfMakeThatPagesNameExist(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	for page, text := range files(t, ".md") {
		for _, name := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+name[1]+name[2]+": ") {
				t.Errorf("%s names `make %s`, which the Makefile has not", page, name[1]+name[2])
			}
		}
	}
}
