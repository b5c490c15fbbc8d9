package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/lookupsvc"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/ranking/rankingtest"
)

// podLimit is for what a pod does by itself, on a busy machine.
const podLimit = time.Minute

// startPod serves the real service, on an index in memory, and returns its address.
func startPod(t *testing.T, policies map[string]*ranking.Policy) string {
	t.Helper()
	standard := ranking.DefaultPolicy()
	service, err := lookupsvc.New(lookupsvc.Options{
		Index: rankingtest.New(func() int64 { return time.Now().UnixMilli() }),
		Policy: func(tenant string) *ranking.Policy {
			if p := policies[tenant]; p != nil {
				return p
			}
			return &standard
		},
		Knobs: ranking.DefaultKnobs(), LookupTimeout: time.Minute,
	})
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterInferenceCacheServer(server, service)
	return listen(t, server)
}

// listen serves until the test ends, and tells where.
func listen(t *testing.T, server *grpc.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	return listener.Addr().String()
}

// outcome is what a user sees of one command.
type outcome struct {
	code     int
	out, err string
}

// ctl runs a command line against a pod; words are split at spaces.
func ctl(t *testing.T, server, line string, stdin ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	args := append([]string{"--timeout", "1m"}, strings.Fields(line)...)
	if server != "" {
		args = append([]string{"--server", server}, args...)
	}
	code := run(context.Background(), args, streams{in: strings.NewReader(strings.Join(stdin, "")), out: &out, err: &errs})
	return outcome{code: code, out: out.String(), err: errs.String()}
}

// must runs a command that has to work, and returns what it printed.
func must(t *testing.T, server, line string, stdin ...string) string {
	t.Helper()
	o := ctl(t, server, line, stdin...)
	require.Equal(t, exitOK, o.code, "%s: %s", line, o.err)
	return o.out
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&v), text)
	return v
}
