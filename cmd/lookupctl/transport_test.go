package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/rig"
)

// guarded answers lookups with NO_HINT to those who bring the token.
type guarded struct {
	pb.UnimplementedInferenceCacheServer
}

func (guarded) LookupRoute(ctx context.Context, _ *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	switch token := md.Get("authorization"); {
	case len(token) == 0:
		return nil, status.Error(codes.Unauthenticated, "no token")
	case token[0] != "Bearer secret":
		return nil, status.Error(codes.PermissionDenied, "not this tenant")
	}
	return &pb.LookupRouteResponse{ReasonCode: "NO_HINT"}, nil
}

// startGuarded serves guarded with TLS if there are options for it.
func startGuarded(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(options...)
	pb.RegisterInferenceCacheServer(server, guarded{})
	return listen(t, server)
}

func TestPodsWithTLSAndTokensAreSpokenTo(t *testing.T) {
	certs := rig.NewCerts(t)
	creds, err := credentials.NewServerTLSFromFile(certs.CertFile, certs.KeyFile)
	require.NoError(t, err)
	encrypted, plain := startGuarded(t, grpc.Creds(creds)), startGuarded(t)
	token := func(text string) string {
		path := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return path
	}
	good, bad := token("secret"), token("other")
	const ask = " --chain 01 --block-tokens 16"
	tls := " --tls-ca-file " + certs.CAFile + " --tls-cert-file " + certs.CertFile + " --tls-key-file " + certs.KeyFile

	require.Contains(t, must(t, encrypted, "lookup"+keys+ask+tls+" --token-file "+good), "NO_HINT")
	require.Contains(t, must(t, plain, "lookup"+keys+ask+" --token-in-clear --token-file "+good), "NO_HINT")
	for line, want := range map[string]string{
		"lookup" + keys + ask + tls:                                        "asks for a token",
		"lookup" + keys + ask + tls + " --token-file " + bad:               "not for this tenant",
		"lookup" + keys + ask:                                              "--tls",
		"lookup" + keys + ask + " --tls":                                   "certificate",
		"lookup" + keys + ask + " --token-file " + good:                    "--token-file needs --tls",
		"lookup" + keys + ask + " --tls-cert-file " + certs.CertFile:       "go together",
		"lookup" + keys + ask + " --tls-ca-file " + certs.KeyFile:          "holds no certificate",
		"lookup" + keys + ask + " --tls --token-file " + token(""):         "is empty",
		"doctor --grpc " + encrypted + tls + " --strict":                   "",
		"doctor --grpc " + encrypted + " --strict --tls-server-name wrong": "",
	} {
		o := ctl(t, encrypted, line)
		require.NotEqual(t, exitOK, o.code, line)
		require.Contains(t, o.err, want, line)
		require.NotContains(t, o.err+o.out, "secret")
	}
	require.Contains(t, ctl(t, "", "doctor --grpc "+encrypted+tls).out, "the pod takes tokens, and not ours")
}
