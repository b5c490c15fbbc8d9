package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePageHasEveryCheck(t *testing.T) {
	page, err := os.ReadFile("../docs/doctor.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	name := regexp.MustCompile(`"(layout|sweeper|names|(?:redis|layout|index|producers|policies|pods|sidecars|doctor)\.[a-z_]+)"`)
	counter := regexp.MustCompile(`\{"([a-z_]+_total)", `)
	seen := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range name.FindAllSubmatch(text, -1) {
			seen[string(m[1])] = true
		}
		for _, m := range counter.FindAllSubmatch(text, -1) {
			seen["pods."+string(m[1])] = true
		}
	}
	require.Greater(t, len(seen), 30)
	for check := range seen {
		require.Contains(t, string(page), "`"+check+"`", check)
	}
}

func TestRunbooksExist(t *testing.T) {
	for check := range runbooks {
		require.FileExists(t, filepath.Join("..", runbookOf(check)))
	}
}
