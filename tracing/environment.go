package tracing

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Enabled tells whether OpenTelemetry's environment variables ask for traces: an
// endpoint is set and nothing switches them off. An error says which variable makes no
// sense and what to write instead.
func Enabled() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: write otlp or none", exporter)
	}
	name, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" {
		return false, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return false, fmt.Errorf("%s is no URL of a collector: write http://host:4317, or https:// for TLS", name)
	}
	name, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if protocol != "" && protocol != "grpc" {
		return false, fmt.Errorf("%s is %q: write grpc, the only protocol there is, and the collector's port for it, mostly 4317", name, protocol)
	}
	if err := checkSampler(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG")); err != nil {
		return false, err
	}
	if err := checkSettings(); err != nil {
		return false, err
	}
	return true, nil
}

var samplers = []string{"always_on", "always_off", "traceidratio",
	"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}

// checkSampler refuses what the SDK would replace by sampling everything.
func checkSampler(sampler, arg string) error {
	if sampler == "" {
		return nil
	}
	if !slices.Contains(samplers, sampler) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER is %q: write one of %s", sampler, strings.Join(samplers, ", "))
	}
	if strings.HasSuffix(sampler, "traceidratio") && arg != "" {
		if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: write the share of traces to keep, from 0 to 1, such as 0.01", arg)
		}
	}
	return nil
}

// first is the first of the variables that is set.
func first(names ...string) (name, value string) {
	for _, name = range names {
		if value = os.Getenv(name); value != "" {
			return name, value
		}
	}
	return names[0], ""
}
