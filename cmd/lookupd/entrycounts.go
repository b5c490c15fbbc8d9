package main

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// entryCounts exports the newest count of entries by model. Models come and go,
// so a scrape reads one whole count: no model is missing in between.
type entryCounts struct {
	byModel atomic.Pointer[map[string]int64]
}

var entriesDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "index_entries"),
	"Distinct prefix keys by model; may lag one sweep interval.", []string{"model"}, nil)

func (e *entryCounts) set(byModel map[string]int64) {
	labelled := make(map[string]int64, len(byModel))
	// In order, so that the same models have a label of their own each time.
	for i, model := range slices.Sorted(maps.Keys(byModel)) {
		name := label(model)
		if i >= mostNames {
			name = otherName
		}
		labelled[name] += byModel[model]
	}
	e.byModel.Store(&labelled)
}

// Describe implements prometheus.Collector.
func (e *entryCounts) Describe(ch chan<- *prometheus.Desc) { ch <- entriesDesc }

// Collect implements prometheus.Collector.
func (e *entryCounts) Collect(ch chan<- prometheus.Metric) {
	counts := e.byModel.Load()
	if counts == nil {
		return
	}
	for model, n := range *counts {
		ch <- prometheus.MustNewConstMetric(entriesDesc, prometheus.GaugeValue, float64(n), model)
	}
}
