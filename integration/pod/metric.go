package pod

import (
	"strconv"
	"strings"
)

// sumSeries adds up the samples of one metric in Prometheus' text format.
func sumSeries(text, name string, labels []string) float64 {
	sum := 0.0
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		end := strings.LastIndexByte(rest, '}') + 1 // 0 without labels
		all := true
		for _, l := range labels {
			all = all && strings.Contains(rest[:end], l)
		}
		fields := strings.Fields(rest[end:])
		if !all || len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(fields[0], 64); err == nil {
			sum += v
		}
	}
	return sum
}
