package pod

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSumSeriesPicksByNameAndLabels(t *testing.T) {
	const text = "# HELP a_total x\na_total{m=\"1\",r=\"X\"} 2\na_total{m=\"2\",r=\"X\"} 3 # {id=\"7\"} 9\na_total_b 7\nup 1\n"
	require.InDelta(t, 2, sumSeries(text, "a_total", []string{`m="1"`}), 0)
	require.InDelta(t, 1, sumSeries(text, "up", nil), 0)
	require.InDelta(t, 0, sumSeries(text, "gone", nil), 0)
	require.InDelta(t, 7, sumSeries(text, "a_total_b", nil), 0)
}
