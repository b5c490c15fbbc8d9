package lookupsvc

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// registrar makes metrics and registers them, and keeps the errors of doing so.
type registrar struct {
	reg prometheus.Registerer // nil = make only
	err error
}

func (r *registrar) register(c prometheus.Collector) {
	if r.reg != nil {
		r.err = errors.Join(r.err, r.reg.Register(c))
	}
}

func (r *registrar) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	r.register(c)
	return c
}

func (r *registrar) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.register(v)
	return v
}

func (r *registrar) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	r.register(v)
	return v
}

func (r *registrar) gauge(name, help string, read func() float64) {
	r.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, read))
}
