package main

import (
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/auth"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking/rankingtest"
	"inferencecache.io/lookuptier/store"
	"inferencecache.io/lookuptier/tracing"
)

// names collects the names of what is registered, also of families without a series yet.
type names struct {
	prometheus.Registerer
	all []string
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n *names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 64)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for d := range descs {
		if name := fqName.FindStringSubmatch(d.String())[1]; strings.HasPrefix(name, namespace+"_") {
			n.all = append(n.all, strings.TrimPrefix(name, namespace+"_"))
		}
	}
	return n.Registerer.Register(c)
}

func (n *names) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := n.Register(c); err != nil {
			panic(err)
		}
	}
}

func TestTheMetricsPageHasEveryMetricAndNoOther(t *testing.T) {
	reg := &names{Registerer: prometheus.NewRegistry()}
	newPodMetrics(reg, newReadiness())
	tracing.NewCounts(reg)
	newSecretMetrics(reg)
	auth.New(nil, reg, nil)
	newIndexMetrics(reg, 2, (*policies.Set)(nil).For, slog.New(slog.DiscardHandler))
	_, err := lookupsvc.New(lookupsvc.Options{Index: rankingtest.New(func() int64 { return 1 }), Metrics: reg})
	require.NoError(t, err)
	_, index := probing(t)
	cached, err := store.NewCached(index, store.CachedOptions{})
	require.NoError(t, err)
	t.Cleanup(cached.Close)
	require.NoError(t, reg.Register(cached))
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (?:`[a-z_]+`(?:, `[a-z_]+`)*)? ?\\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, row[1])
	}
	for _, name := range reg.all {
		if name == "panics_total" { // in the text
			documented = append(documented, name)
		}
		require.True(t, slices.Contains(documented, name), "%s exists and is not documented", name)
	}
	for _, name := range documented {
		require.True(t, slices.Contains(reg.all, name), "%s is documented and does not exist", name)
	}
}

func TestTheMetricsPageHasEveryReason(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := lookupsvc.New(lookupsvc.Options{Index: rankingtest.New(func() int64 { return 1 }), Metrics: registry})
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	families, err := registry.Gather()
	require.NoError(t, err)
	checked := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" {
					require.Contains(t, string(page), "`"+l.GetValue()+"`")
					checked++
				}
			}
		}
	}
	require.Greater(t, checked, 10)
}

func TestTheConfigurationPageHasEveryFlagWithItsDefault(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	documented(t, string(page), reflect.TypeFor[config]())
}

func documented(t *testing.T, page string, flags reflect.Type) {
	t.Helper()
	for i := range flags.NumField() {
		tag := flags.Field(i).Tag
		if _, embedded := tag.Lookup("embed"); embedded {
			documented(t, page, flags.Field(i).Type)
			continue
		}
		name := tag.Get("name")
		if name == "" {
			name = strings.ToLower(flags.Field(i).Name)
		}
		value := tag.Get("default")
		switch {
		case name == "version":
			continue
		case value == "${embedded}":
			value = defaultEmbeddedBind
		case flags.Field(i).Type.Kind() == reflect.Bool:
			value = "off"
		case value == "":
			value = "empty"
		}
		row := regexp.MustCompile("\\| `--" + name + "` \\| `?" + regexp.QuoteMeta(value) + "`? \\|")
		require.True(t, row.MatchString(page), "no row of --%s with its default %s", name, value)
	}
}
