package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

// parsed is the configuration of a command line that is fine.
func parsed(t *testing.T, args ...string) *config {
	t.Helper()
	var out, err bytes.Buffer
	c, _, done := parse(args, &out, &err)
	require.False(t, done, err.String())
	return c
}

func TestDefaultsAreTheReferences(t *testing.T) {
	c := parsed(t)
	require.Equal(t, ":9090", c.GRPCBindAddress)
	require.Equal(t, ":8080", c.HTTPBindAddress)
	require.Equal(t, 16, c.EngineBlockSize)
	require.Equal(t, 1, c.Shards)
	require.Equal(t, span(100*time.Millisecond), c.LookupTimeout)
	require.Equal(t, ranking.DefaultKnobs(), c.knobs())
}

func TestKnobsHaveTheirOffSwitches(t *testing.T) {
	c := parsed(t, "--pressure-weight=0", "--slo-tight-ttft-ms=0", "--slo-tight-bias=0", "--tenant-hot-min-hit-rate=0", "--tenant-hot-max-age=0s")
	require.Equal(t, ranking.Knobs{}, c.knobs())
}

func TestTheEnvironmentSetsFlags(t *testing.T) {
	t.Setenv("LOOKUPD_ENGINE_BLOCK_SIZE", "32")
	t.Setenv("LOOKUPD_LOOKUP_TIMEOUT", "7ms")
	require.Equal(t, 32, parsed(t).EngineBlockSize)
	require.Equal(t, span(7*time.Millisecond), parsed(t).LookupTimeout)
	require.Equal(t, 64, parsed(t, "--engine-block-size=64").EngineBlockSize, "the command line wins")
	t.Setenv("LOOKUPD_SHARDS", "many")
	var out, errs bytes.Buffer
	_, code, done := parse(nil, &out, &errs)
	require.True(t, done)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs.String(), "--shards")
}

func TestAFlagThatMakesNoSenseEndsWithOneLineThatSaysWhatToWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for args, want := range map[string]string{
		"--grpc-bind-address=9090":                            "write host:port",
		"--grpc-bind-address=:http":                           "the port a number",
		"--grpc-bind-address=:99999":                          "up to 65535",
		"--http-bind-address=localhost":                       "write host:port",
		"--grpc-bind-address=:7000 --http-bind-address=:7000": "each a port of its own",
		"--grpc-max-connection-age=1ns":                       "write at least 1s, such as 5m, or 0 for never",
		"--grpc-max-connection-age=999ms":                     "write at least 1s",
		"--engine-block-size=0":                               "write the engines' own",
		"--engine-block-size=-16":                             "write the engines' own",
		"--engine-block-size=2000000":                         "1 to 1048576",
		"--engine-block-size=x":                               `"x" is no whole number: write one such as 16`,
		"--log-format=xml":                                    `must be one of "json","text"`,
		"--log-level=loud":                                    `must be one of "debug","info","warn","error"`,
		"--redis=localhost:6379":                              "write redis://host:port",
		"--redis=http://localhost":                            "write redis, rediss",
		"--redis=redis://localhost --embedded-redis-bind-address=127.0.0.1:7000": "leave one of them out",
		"--embedded-redis-bind-address=nonsense":                                 "write host:port",
		"--policy-dir=/does/not/exist":                                           "create it, or leave the flag out",
		"--policy-dir=" + file:                                                   "no directory",
		"--lookup-timeout=0s":                                                    "write more, such as 100ms",
		"--lookup-timeout=-1s":                                                   "0 or more",
		"--lookup-timeout=100":                                                   "a number with its unit",
		"--key-ttl=1ms":                                                          "at least 1s",
		"--key-ttl=-1h":                                                          "0 or more",
		"--sweep-interval=0s":                                                    "at least 100ms",
		"--sweep-interval=2h --key-ttl=1h":                                       "sweep more often",
		"--shards=0":                                                             "write 1 to 1024",
		"--shards=2000":                                                          "write 1 to 1024",
		"--cache=maybe":                                                          `must be one of "on","off"`,
		"--cache-bytes=lots":                                                     "such as 64MiB",
		"--cache-bytes=-1MiB":                                                    "such as 64MiB",
		"--cache-bytes=9999999999GiB":                                            "such as 64MiB",
		"--cache-bytes=1KiB":                                                     "--cache off",
		"--max-staleness=0s":                                                     "--cache off",
		"--pressure-weight=-1":                                                   "0 or more",
		"--pressure-weight=NaN":                                                  "0 or more",
		"--slo-tight-bias=+Inf":                                                  "0 or more",
		"--slo-tight-ttft-ms=-5":                                                 "0 = off",
		"--tenant-hot-min-hit-rate=1.5":                                          "0 to 1",
		"--tenant-hot-max-age=-5m":                                               "0 or more",
		"--drain=-1s":                                                            "0 or more",
		"--drain=soon":                                                           "a number with its unit",
		"--lookup-timeout -5ms":                                                  "-5ms is negative: write a duration of 0 or more, such as 250ms",
		"--lookup-timeout --cache off":                                           "has no value: write one, such as 100ms",
		"--lookup-timeout 99999999h":                                             "is too long: write at most 2562047h",
		"--cache-bytes -1MiB":                                                    "such as 64MiB",
		"--shards two":                                                           `"two" is no whole number: write one such as 16`,
		"--shards -1":                                                            "write 1 to 1024",
		"--shards 99999999999999999999":                                          "is out of range: write a whole number up to 9223372036854775807",
		"--slo-tight-ttft-ms 1.5":                                                `"1.5" is no whole number`,
		"--slo-tight-ttft-ms 3000000000":                                         "up to 2147483647",
		"--slo-tight-ttft-ms -5":                                                 "0 = off",
		"--pressure-weight 1e300":                                                `"1e300" is out of range: write a smaller number`,
		"--pressure-weight -.5":                                                  "0 or more",
		"--pressure-weight much":                                                 `"much" is no number: write one such as 0.5`,
		"--no-such-flag":                                                         "lookupd --help",
		"positional":                                                             "lookupd --help",
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(args), &out, &errs)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs.String(), want, args)
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), args)
		require.True(t, strings.HasPrefix(errs.String(), "lookupd: "), errs.String())
		require.Empty(t, out.String(), args)
	}
}

func TestAPasswordIsNotRepeated(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, exitUsage, run([]string{"--redis=redis://user:hunter2@host:notaport/0"}, &out, &errs))
	require.NotContains(t, errs.String(), "hunter2")
}

func TestPoliciesThatAreWrongAtTheStartEndIt(t *testing.T) {
	dir := t.TempDir()
	write := func(spec string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "p.yaml"), []byte("apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\n"+
			"metadata: {name: p, namespace: t}\nspec: "+spec+"\n"), 0o600))
	}
	base := []string{"--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0", "--log-level=error", "--policy-dir=" + dir}
	for spec, c := range map[string]struct{ args, want string }{
		"{minimumMatchedTokens: -3}": {"", "minimumMatchedTokens"},
		"{evictionTTL: 25h}":         {"", "p.yaml:4: spec.evictionTTL: is 25h0m0s for tenant \"t\", and the lookup pods' --key-ttl 24h0m0s: write less"},
		"{evictionTTL: 1m}":          {"--key-ttl=20m", "the default evictionTTL is 30m"},
	} {
		write(spec)
		var out, errs bytes.Buffer
		code := run(append(base, strings.Fields(c.args)...), &out, &errs)
		require.Equal(t, exitUsage, code, spec)
		require.Contains(t, errs.String(), c.want, spec)
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}

func TestHelpAndVersionEndWell(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run([]string{"--help"}, &out, &errs))
	for _, flag := range []string{
		"--grpc-bind-address", "--http-bind-address", "--engine-block-size", "--log-format", "--log-level", "--redis",
		"--embedded-redis-bind-address", "--policy-dir", "--lookup-timeout", "--key-ttl", "--sweep-interval", "--shards",
		"--cache", "--cache-bytes", "--max-staleness", "--pressure-weight", "--slo-tight-ttft-ms", "--slo-tight-bias", "--tenant-hot-min-hit-rate", "--tenant-hot-max-age",
		"--drain", "--shutdown-delay", "--grpc-max-connection-age", "--version", "LOOKUPD_LOOKUP_TIMEOUT",
	} {
		require.Contains(t, out.String(), flag)
	}
	require.NotContains(t, out.String(), "${")
	require.Empty(t, errs.String())
	out.Reset()
	require.Equal(t, exitOK, run([]string{"--version"}, &out, &errs))
	require.Contains(t, out.String(), "lookupd dev (go")
}

func TestSizesHaveUnits(t *testing.T) {
	for text, bytes := range map[string]int64{"256MiB": 256 << 20, "2GiB": 2 << 30, "1048576": 1 << 20, "4096KiB": 4 << 20, "1048577B": 1<<20 + 1} {
		require.Equal(t, size(bytes), parsed(t, "--cache-bytes="+text).CacheBytes)
	}
	require.Equal(t, "256MiB", size(256<<20).String())
	require.Equal(t, "1048577B", size(1<<20+1).String())
	require.Equal(t, "0", size(0).String())
}
