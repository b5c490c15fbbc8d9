package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

// maxReply is how large a reply may be: a lookup that 10,000 replicas match has one
// score for each.
const maxReply = 64 << 20

// dial prepares a connection; it is made at the first call. close it when done.
func (s *session) dial() (client pb.InferenceCacheClient, closeConn func(), err error) {
	options, err := s.transport.options()
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient(s.server, append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))...)
	if err != nil {
		return nil, nil, usagef("--server %q: %v; give host:port", s.server, err)
	}
	return pb.NewInferenceCacheClient(conn), func() { _ = conn.Close() }, nil
}

// call connects, makes one call within the timeout, and explains its error.
func (s *session) call(f func(ctx context.Context, client pb.InferenceCacheClient) error) error {
	client, closeConn, err := s.dial()
	if err != nil {
		return err
	}
	defer closeConn()
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.explainError(f(ctx, client))
}

// explainError turns a gRPC error into what an operator can act on. Other errors
// pass; a call's error that is wrapped keeps what was said about it.
func (s *session) explainError(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch st.Code() {
	case codes.Unavailable:
		if strings.Contains(st.Message(), "connection error") || strings.Contains(st.Message(), "name resolver") {
			hint := ""
			if strings.Contains(st.Message(), "tls:") || strings.Contains(st.Message(), "certificate") || strings.Contains(st.Message(), "server preface") {
				hint = ", or see whether it speaks TLS (--tls, --tls-ca-file)"
			}
			return fmt.Errorf("no lookup pod answers at %s (%s); start one, or name another with --server%s", s.server, st.Message(), hint)
		}
		return fmt.Errorf("%s could not do it: %s", s.server, st.Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s did not answer within %v (%s); give it longer with --timeout", s.server, s.timeout, st.Message())
	case codes.Unauthenticated:
		return fmt.Errorf("%s asks for a token, or for another one (%s); give --token-file", s.server, st.Message())
	case codes.PermissionDenied:
		return fmt.Errorf("the token is not for this tenant at %s (%s); give another --token-file", s.server, st.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%s does not speak inferencecache.v1alpha1 (%s); is it a lookup pod's gRPC address?", s.server, st.Message())
	case codes.Canceled:
		return fmt.Errorf("interrupted: %w", context.Canceled)
	default:
		return fmt.Errorf("%s: %s: %s", s.server, st.Code(), st.Message())
	}
}
