package lookupsvc

import (
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// StreamMetrics sends the pod's metrics at once and then every MetricsEvery. A name of
// the request stands for a metric with all of its series, or, of a histogram, for one of
// its parts; none stands for everything. A consumer that is slow gets fewer rounds.
func (s *Service) StreamMetrics(req *pb.StreamMetricsRequest, stream grpc.ServerStreamingServer[pb.Metric]) error {
	if s.streams.gatherer == nil {
		return status.Error(codes.Unimplemented, "this lookup pod does not stream metrics; scrape /metrics on its HTTP port instead")
	}
	leave, err := s.streams.enter()
	if err != nil {
		return err
	}
	defer leave()
	tick := time.NewTicker(s.streams.every)
	defer tick.Stop()
	for {
		if err := s.sendMetrics(req.GetNames(), stream); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-tick.C:
		}
	}
}

func (s *Service) sendMetrics(names []string, stream grpc.ServerStreamingServer[pb.Metric]) error {
	// As on /metrics, what can be gathered is better than nothing.
	families, err := s.streams.gatherer.Gather()
	if err != nil {
		s.sampler.warn("metrics were not all gathered", "error", err)
	}
	at := time.Now().UnixMicro()
	for _, f := range families {
		all := len(names) == 0 || slices.Contains(names, f.GetName())
		for _, m := range samples(f) {
			if all || slices.Contains(names, m.Name) {
				m.TimestampUs = at
				if err := stream.Send(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// samples flattens a family as the text format does: a histogram is its buckets, sum and count.
func samples(f *dto.MetricFamily) []*pb.Metric {
	var list []*pb.Metric
	kind := metricTypes[f.GetType()]
	for _, m := range f.GetMetric() {
		add := func(suffix string, value float64, extra ...string) {
			labels := make(map[string]string, len(m.GetLabel())+len(extra)/2)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(extra); i += 2 {
				labels[extra[i]] = extra[i+1]
			}
			list = append(list, &pb.Metric{Name: f.GetName() + suffix, Type: kind, Labels: labels, Value: value})
		}
		switch {
		case m.GetHistogram() != nil:
			h := m.GetHistogram()
			for _, b := range h.GetBucket() {
				add("_bucket", float64(b.GetCumulativeCount()), "le", number(b.GetUpperBound()))
			}
			add("_bucket", float64(h.GetSampleCount()), "le", "+Inf")
			add("_sum", h.GetSampleSum())
			add("_count", float64(h.GetSampleCount()))
		case m.GetSummary() != nil:
			for _, q := range m.GetSummary().GetQuantile() {
				add("", q.GetValue(), "quantile", number(q.GetQuantile()))
			}
			add("_sum", m.GetSummary().GetSampleSum())
			add("_count", float64(m.GetSummary().GetSampleCount()))
		case m.GetCounter() != nil:
			add("", m.GetCounter().GetValue())
		case m.GetGauge() != nil:
			add("", m.GetGauge().GetValue())
		default:
			add("", m.GetUntyped().GetValue())
		}
	}
	return list
}

var metricTypes = map[dto.MetricType]string{
	dto.MetricType_COUNTER: "counter", dto.MetricType_GAUGE: "gauge", dto.MetricType_HISTOGRAM: "histogram",
	dto.MetricType_SUMMARY: "summary", dto.MetricType_UNTYPED: "untyped",
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
