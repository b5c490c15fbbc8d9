package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// fromTheScrape are labels that Prometheus adds to whatever it scrapes.
var fromTheScrape = []string{"namespace", "pod", "instance", "job", "container", "service", "le", "__name__"}

func parse(t *testing.T, where, query string) parser.Expr {
	t.Helper()
	query = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*").Replace(query)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	require.NoError(t, err, "%s: %s", where, query)
	return expr
}

// check parses a query and holds its metrics and labels to what is exported.
func (e exported) check(t *testing.T, where, query string) {
	t.Helper()
	parser.Inspect(parse(t, where, query), func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			e.checkSelector(t, where, n)
		case *parser.AggregateExpr:
			e.checkLabels(t, where, n.Grouping, n.Expr)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				e.checkLabels(t, where, n.VectorMatching.MatchingLabels, n)
			}
		}
		return nil
	})
}

func (e exported) checkSelector(t *testing.T, where string, n *parser.VectorSelector) {
	t.Helper()
	m, ok := e[n.Name]
	require.True(t, ok, "%s: nothing exports %s", where, n.Name)
	var own []*labels.Matcher
	for _, matcher := range n.LabelMatchers {
		if slices.Contains(fromTheScrape, matcher.Name) {
			continue
		}
		require.Contains(t, m.labels, matcher.Name, "%s: %s has no such label", where, n.Name)
		own = append(own, matcher)
	}
	// Series with a fixed set of labels are there from the start, so a value that nothing
	// has is a typing error.
	if len(m.series) > 0 && len(own) > 0 {
		require.True(t, slices.ContainsFunc(m.series, func(series map[string]string) bool {
			return !slices.ContainsFunc(own, func(l *labels.Matcher) bool { return !l.Matches(series[l.Name]) })
		}), "%s: %s selects no series", where, n)
	}
}

// checkLabels wants each label on some metric of the expression.
func (e exported) checkLabels(t *testing.T, where string, names []string, expr parser.Node) {
	t.Helper()
	known := slices.Clone(fromTheScrape)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok {
			known = append(known, e[n.Name].labels...)
		}
		return nil
	})
	for _, name := range names {
		require.Contains(t, known, name, "%s: no metric in %s has this label", where, expr)
	}
}

// resultLabels are those that the series of a query's result can have.
func (e exported) resultLabels(node parser.Node) []string {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		return n.Grouping
	case *parser.VectorSelector:
		return append(slices.Clone(fromTheScrape), e[n.Name].labels...)
	}
	for child := range parser.ChildrenIter(node) {
		if labels := e.resultLabels(child); labels != nil {
			return labels // the left side names the result of an operator
		}
	}
	return nil
}

type dashboard struct {
	Templating struct {
		List []struct{ Name, Query string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ RefID, Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("dashboards/lookup-tier.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func TestTheDashboardAsksForWhatTheBinariesExport(t *testing.T) {
	e := everythingExported(t)
	asked := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			asked++
			e.check(t, p.Title, target.Expr)
			result := e.resultLabels(parse(t, p.Title, target.Expr))
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, result, l[1], "%s: what the legend names is not in the result of %s", p.Title, target.Expr)
			}
		}
	}
	require.Greater(t, asked, 40)
}

func TestTheDashboardsPanelsDoNotOverlap(t *testing.T) {
	d := readDashboard(t)
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	require.Equal(t, "datasource", d.Templating.List[0].Name)
}

func TestTheAlertsAskForWhatTheBinariesExport(t *testing.T) {
	e := everythingExported(t)
	for _, group := range rules(t) {
		for _, rule := range group.Rules {
			e.check(t, rule.Alert+rule.Record, rule.Expr.String())
			if rule.Record != "" {
				e[rule.Record] = metric{}
			}
		}
	}
}

func TestTheAutoscalersMetricIsMadeFromOneThatExists(t *testing.T) {
	text, err := os.ReadFile("prometheus-adapter.yaml")
	require.NoError(t, err)
	var file struct {
		Rules struct {
			Custom []struct {
				SeriesQuery, MetricsQuery string
				Resources                 map[string]any
				Name                      struct{ As string }
			}
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	rule := file.Rules.Custom[0]
	e := everythingExported(t)
	e.check(t, "seriesQuery", rule.SeriesQuery)
	query := strings.NewReplacer("<<.Series>>", "inferencecache_lookup_route_calls_total", "<<.LabelMatchers>>", `pod="p"`, "<<.GroupBy>>", "pod").Replace(rule.MetricsQuery)
	e.check(t, "metricsQuery", query)
	scaler, err := os.ReadFile("base/horizontalpodautoscaler.yaml")
	require.NoError(t, err)
	require.Contains(t, string(scaler), "name: "+rule.Name.As+"\n")
}
