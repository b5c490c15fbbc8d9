package tracing

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePageHasEveryNameAndNoOther(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	require.NoError(t, err)
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			names[name] = true
		}
		return true
	})
	require.Len(t, names, 23)
	page, err := os.ReadFile("../docs/tracing.md")
	require.NoError(t, err)
	for name := range names {
		require.Contains(t, string(page), name)
	}
	for _, cell := range regexp.MustCompile("(?m)^\\| `([a-z._]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		require.True(t, names[cell[1]], "%s is documented and not recorded", cell[1])
	}
}
