package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/doctor"
	"inferencecache.io/lookuptier/integration/rig"
)

func TestDoctorTable(t *testing.T) {
	report := &doctor.Report{Failed: 1, Warned: 1, Passed: 2, Findings: []doctor.Finding{
		{Check: "redis.eviction_policy", Severity: doctor.Fail, Subject: "10.0.0.1:6379", Text: "maxmemory-policy is allkeys-lru", Evidence: []string{"maxmemory 2.0 GiB, 7 keys evicted since it started"}, Fix: "CONFIG SET maxmemory-policy noeviction."},
		{Check: "names", Severity: doctor.Warn, Text: "names that begin or end with white space", Evidence: []string{"model \"a\x1b[2J\n\""}, Fix: "Look for a trailing newline."},
		{Check: "redis.version", Severity: doctor.OK, Subject: "10.0.0.1:6379", Text: "version 7.0.15"},
		{Check: "layout", Severity: doctor.OK, Text: "version 1, 1 shard"},
	}}
	var out bytes.Buffer
	writeReport(&session{streams: streams{out: &out}}, report)
	require.Equal(t, `1 failed, 1 warned, 2 ok

FAIL  redis.eviction_policy  10.0.0.1:6379
    maxmemory-policy is allkeys-lru
    · maxmemory 2.0 GiB, 7 keys evicted since it started
    Do: CONFIG SET maxmemory-policy noeviction.

WARN  names
    names that begin or end with white space
    · "model \"a\x1b[2J\n\""
    Do: Look for a trailing newline.

OK             ABOUT          WHAT
redis.version  10.0.0.1:6379  version 7.0.15
layout         -              version 1, 1 shard
`, out.String())

	out.Reset()
	writeReport(&session{streams: streams{out: &out}, width: 40}, report)
	require.Contains(t, out.String(), "    · maxmemory 2.0 GiB, 7 keys evicted\n    since it started\n")
}

func TestDoctorsExitCodes(t *testing.T) {
	w := newWorld(t, 1)
	w.holds(demo, vllm, "engine-0", 4)
	pod := startPod(t, nil)
	healthy := ctl(t, "", "doctor --redis "+w.url)
	require.Equal(t, exitOK, healthy.code, healthy.out)
	require.Contains(t, healthy.out, "Nothing is wrong: 0 failed, 0 warned")
	require.Empty(t, healthy.err)

	w.holds(demo, vllm, "ENGINE-0", 4)
	line := "doctor --redis " + w.url
	require.Equal(t, exitOK, ctl(t, "", line).code, "a warning is no failure")
	require.Equal(t, exitFailure, ctl(t, "", line+" --strict").code)

	o := ctl(t, "", line+" --shards 4 -o json")
	require.Equal(t, exitFailure, o.code)
	report := decode[doctor.Report](t, o.out)
	require.Equal(t, 1, report.Failed)
	require.Equal(t, "layout", report.Findings[0].Check)

	grpc := ctl(t, "", "doctor --grpc "+pod+",127.0.0.1:1")
	require.Equal(t, exitFailure, grpc.code)
	require.Contains(t, grpc.out, "FAIL  pods.grpc  127.0.0.1:1")
	require.Regexp(t, `pods.grpc +`+pod+` +answers a probe`, grpc.out)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.yaml"), []byte("kind: x\n"), 0o600))
	o = ctl(t, "", "doctor --policy-dir "+dir)
	require.Equal(t, exitFailure, o.code)
	require.Contains(t, o.out, "p.yaml:1")
}

func TestDoctorAndExplainRefuseCommandLinesThatMakeNoSense(t *testing.T) {
	for line, want := range map[string]string{
		"doctor":                                                                      "nothing to look at",
		"doctor --redis localhost:6379":                                               "no scheme: write redis://host:port",
		"doctor --redis redis://h --shards=-1":                                        "--shards is -1",
		"doctor --redis redis://h --within 0s":                                        "must be more than 0",
		"doctor --policy-dir . --redis-ca-file x":                                     "have no effect without --redis",
		"doctor --redis redis://h --redis-username-file x":                            "needs --redis-password-file",
		"doctor --redis redis://h --samples 0":                                        "must be 1 or more",
		"explain --chain 01 --block-tokens 1":                                         "--redis is missing",
		"explain --redis redis://h":                                                   "no prompt",
		"explain --redis redis://h --chain 01 --block-tokens 1 --pressure-weight NaN": "--pressure-weight is NaN",
		"explain --redis redis://h --tokens 1 --engine-block-size 0":                  "--engine-block-size is 0",
		"explain --redis redis://h --tokens 1 --lookup-timeout 0s":                    "--lookup-timeout is 0s",
		"explain --redis redis://h:x --tokens 1":                                      "redis URL",
	} {
		o := ctl(t, "", line)
		require.Equal(t, exitUsage, o.code, line+o.err)
		require.Contains(t, o.err, want, line)
		require.Empty(t, o.out, line)
	}
}

func TestDoctorHidesThePassword(t *testing.T) {
	server := rig.Standalone(t, rig.WithPassword("s3cret"))
	o := ctl(t, "", "doctor -o json --redis "+server.URL())
	require.NotContains(t, o.out+o.err, "s3cret")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	o = ctl(t, "", "doctor --redis redis://"+server.Addr()+" --redis-password-file "+file)
	require.Equal(t, exitOK, o.code, o.out+o.err)
	require.NotContains(t, o.out+o.err, "s3cret")
	o = ctl(t, "", "explain --redis redis://"+server.Addr()+" --redis-password-file "+file+keys+chainOf(1))
	require.Equal(t, exitOK, o.code, o.err)
	o = ctl(t, "", "doctor --redis "+server.URLAs("", "wr0ng"))
	require.Equal(t, exitFailure, o.code)
	require.Contains(t, o.out, "refuses the credentials")
	require.NotContains(t, o.out+o.err, "wr0ng")
}
