package deploy

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write base/prometheusrule.yaml anew from alerts/")

// rules are all groups of alerts/*.rules.yaml, in the order of the files' names.
func rules(t *testing.T) []monitoring.RuleGroup {
	t.Helper()
	files, err := filepath.Glob("alerts/*.rules.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var groups []monitoring.RuleGroup
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var spec monitoring.PrometheusRuleSpec
		require.NoError(t, yaml.UnmarshalStrict(text, &spec), file)
		groups = append(groups, spec.Groups...)
	}
	return groups
}

func alerts(t *testing.T) []monitoring.Rule {
	t.Helper()
	var list []monitoring.Rule
	for _, group := range rules(t) {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				list = append(list, rule)
			}
		}
	}
	return list
}

// The unit tests of the rules, by Prometheus' own tool.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	tests, err := filepath.Glob("alerts/*.test.yaml")
	require.NoError(t, err)
	// Without service discovery, of which tests of rules need none, it builds in half the time.
	args := append([]string{"run", "-tags", "remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool", "test", "rules"}, tests...)
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, file := range tests {
		require.FileExists(t, strings.Replace(file, ".test.", ".rules.", 1))
	}
}

func TestEveryAlertHasAUnitTest(t *testing.T) {
	tests, err := filepath.Glob("alerts/*.test.yaml")
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range tests {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	for _, alert := range alerts(t) {
		require.Contains(t, all.String(), "exp_labels: {severity: "+alert.Labels["severity"])
		require.Contains(t, all.String(), "alertname: "+alert.Alert+"\n", "no unit test")
	}
}

// The operator wants the rules in an object of its own; the files are what they are written in.
func TestThePrometheusRuleHasTheRulesOfTheFiles(t *testing.T) {
	const file = "base/prometheusrule.yaml"
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
		"metadata": map[string]any{"name": "lookup-tier"},
		"spec":     map[string]any{"groups": rules(t)},
	})
	require.NoError(t, err)
	want := "# Written from alerts/*.rules.yaml by `go -C deploy test -run PrometheusRule . -update`.\n" + string(text)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go -C deploy test -run PrometheusRule . -update")
}

// Who is woken up starts from the symptom, and finds what to look at, why it may be so, and what to do.
func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	wanted := map[string]bool{"docs/runbooks/README.md": true}
	index, err := os.ReadFile("../docs/runbooks/README.md")
	require.NoError(t, err)
	for _, alert := range alerts(t) {
		require.NotEmpty(t, alert.Annotations["summary"], alert.Alert)
		path := alert.Annotations["runbook_url"]
		require.Equal(t, "docs/runbooks/"+kebab(alert.Alert)+".md", path)
		wanted[path] = true
		page, err := os.ReadFile("../" + path)
		require.NoError(t, err, alert.Alert)
		require.True(t, strings.HasPrefix(string(page), "# "+alert.Alert+"\n"), path)
		at := 0
		for _, heading := range []string{"**You see**", "**It means**", "**It costs**", "## Check", "## Causes, the likeliest first", "## Afterwards"} {
			i := strings.Index(string(page)[at:], heading)
			require.GreaterOrEqual(t, i, 0, "%s: no %q after what comes before it", path, heading)
			at += i
		}
		require.Contains(t, string(index), "("+filepath.Base(path)+")", "the index of runbooks lacks %s", alert.Alert)
	}
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		require.True(t, wanted[strings.TrimPrefix(page, "../")], "%s is no alert's runbook", page)
	}
}

var hump = regexp.MustCompile(`([a-z])([A-Z])`)

// kebab is the name of an alert's page: KVSidecarLag → kvsidecar-lag.
func kebab(alert string) string {
	return strings.ToLower(hump.ReplaceAllString(alert, "$1-$2"))
}
