package flagvalues_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/cmd/internal/flagvalues"
)

type flags struct {
	Span    flagvalues.Span `default:"1s"`
	Wait    time.Duration
	Count   int32
	Total   *int64
	Rate    *float32
	Name    string
	Weights float64
}

func parse(t *testing.T, line string) (*flags, error) {
	t.Helper()
	f := new(flags)
	parser, err := kong.New(f, flagvalues.Options())
	require.NoError(t, err)
	_, err = parser.Parse(strings.Fields(line))
	return f, err
}

func TestGoodValuesAreRead(t *testing.T) {
	f, err := parse(t, "--span 1m30s --wait -5ms --count -0x10 --total 9000000000 --rate -.5 --weights=1e3 --name x")
	require.NoError(t, err)
	require.Equal(t, flagvalues.Span(90*time.Second), f.Span)
	require.Equal(t, -5*time.Millisecond, f.Wait)
	require.EqualValues(t, -16, f.Count)
	require.EqualValues(t, 9_000_000_000, *f.Total)
	require.InDelta(t, -0.5, *f.Rate, 0)
	require.InDelta(t, 1000, f.Weights, 0)
	f, err = parse(t, "")
	require.NoError(t, err)
	require.Equal(t, flagvalues.Span(time.Second), f.Span)
	require.Nil(t, f.Rate)
}

func TestOfAWrongValueItIsSaidWhatToWrite(t *testing.T) {
	for line, want := range map[string]string{
		"--span -5ms":           "--span: -5ms is negative: write a duration of 0 or more, such as 250ms",
		"--span=-5ms":           "--span: -5ms is negative",
		"--span 100":            `--span: "100" is no duration: write a number with its unit`,
		"--span --name x":       "--span: has no value: write one, such as 1s",
		"--wait 99999999h":      `--wait: "99999999h" is too long: write at most 2562047h`,
		"--wait 1h99999999999h": "is too long",
		"--wait h":              "is no duration",
		"--count two":           `--count: "two" is no whole number: write one such as 16`,
		"--count 1.5":           "is no whole number",
		"--count 2147483648":    "is out of range: write a whole number up to 2147483647",
		"--total":               "--total: has no value",
		"--rate 1e300":          `--rate: "1e300" is out of range: write a smaller number`,
		"--rate half":           `--rate: "half" is no number: write one such as 0.5`,
		"--weights --rate 1":    "--weights: has no value",
	} {
		_, err := parse(t, line)
		require.ErrorContains(t, err, want, line)
		require.NotContains(t, err.Error(), "perhaps", line)
	}
}
