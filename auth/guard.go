package auth

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Why a call is refused: the label reason of auth_rejected_total. The first three are
// UNAUTHENTICATED, the last is PERMISSION_DENIED.
const (
	reasonMissing   = "missing_token"
	reasonMalformed = "malformed_header"
	reasonUnknown   = "unknown_token"
	reasonTenant    = "wrong_tenant"
)

// Guard lets calls through that show a token that may do what they ask. It is safe for
// concurrent use.
type Guard struct {
	table    func() *Table
	log      *slog.Logger
	refusals map[string]*refusals // by reason
}

// New makes a guard by the table of the moment; table is called for every call and
// must not block. log gets at most one line a second of each reason,
// which says how many were left out since the last.
func New(table func() *Table, reg prometheus.Registerer, log *slog.Logger) *Guard {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "inferencecache", Name: "auth_rejected_total",
		Help: "Calls, and messages of a stream, that were refused for the token they showed."}, []string{"reason"})
	g := &Guard{table: table, log: log, refusals: map[string]*refusals{}}
	for _, reason := range []string{reasonMissing, reasonMalformed, reasonUnknown, reasonTenant} {
		g.refusals[reason] = newRefusals(v.WithLabelValues(reason))
	}
	reg.MustRegister(v)
	return g
}

// digestOf finds what identifies the caller.
func digestOf(ctx context.Context) (digest [sha256.Size]byte, reason string) {
	headers := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(headers) == 0 {
		return digest, reasonMissing
	}
	token, ok := bearer(headers[0])
	if len(headers) > 1 || !ok {
		return digest, reasonMalformed
	}
	return sha256.Sum256([]byte(token)), ""
}

// holder is whoever has the token, as the table is now.
func (g *Guard) holder(ctx context.Context, method string, digest [sha256.Size]byte) (*Holder, error) {
	h := g.table().Holder(digest)
	if h == nil {
		return nil, g.refuse(ctx, method, reasonUnknown, nil, "")
	}
	return h, nil
}

func (g *Guard) identify(ctx context.Context, method string) (*Holder, [sha256.Size]byte, error) {
	digest, reason := digestOf(ctx)
	if reason != "" {
		return nil, digest, g.refuse(ctx, method, reason, nil, "")
	}
	h, err := g.holder(ctx, method, digest)
	return h, digest, err
}

var words = map[string]string{
	reasonMissing:   "no token: send the metadata `authorization: Bearer TOKEN`",
	reasonMalformed: "the metadata `authorization` is not one `Bearer TOKEN`",
	reasonUnknown:   "this pod knows no such token: it was withdrawn, or never given out",
}

func (g *Guard) refuse(ctx context.Context, method, reason string, h *Holder, tenant string) error {
	omitted, write := g.refusals[reason].add()
	holder, address := "", ""
	if h != nil {
		holder = h.Name
	}
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	if write {
		attrs := []any{"rpc", method, "reason", reason, "peer", address, "holder", holder, "tenant", shown(tenant)}
		if omitted > 0 {
			attrs = append(attrs, "omitted", omitted)
		}
		g.log.Warn("call refused: "+reason, attrs...)
	}
	if reason == reasonTenant {
		return status.Errorf(codes.PermissionDenied, "the token of %q may not %s tenant %q", holder, rules[method].verb(), shown(tenant))
	}
	return status.Error(codes.Unauthenticated, words[reason])
}

func (g *Guard) check(ctx context.Context, method string, h *Holder, msg any) error {
	if tenant, ok := rules[method].allows(h, msg); !ok {
		return g.refuse(ctx, method, reasonTenant, h, tenant)
	}
	return nil
}

// Unary guards calls of one message.
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if rules[info.FullMethod] == ruleOpen {
		return next(ctx, req)
	}
	h, _, err := g.identify(ctx, info.FullMethod)
	if err == nil {
		err = g.check(ctx, info.FullMethod, h, req)
	}
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// Stream guards streams message by message: a token that is withdrawn while a stream is
// open ends it at the next message in either direction.
func (g *Guard) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if rules[info.FullMethod] == ruleOpen {
		return next(srv, stream)
	}
	_, digest, err := g.identify(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, &guarded{ServerStream: stream, guard: g, method: info.FullMethod, digest: digest})
}

type guarded struct {
	grpc.ServerStream
	guard  *Guard
	method string
	digest [sha256.Size]byte
	// asked is the last message received, checked again when the table has changed;
	// under is the table that it was last checked with. The handler's goroutine alone
	// sends and receives on these streams.
	asked any
	under *Table
}

func (s *guarded) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.asked = m
	return s.check()
}

// SendMsg looks at the token again only if the table is another one.
func (s *guarded) SendMsg(m any) error {
	if s.asked != nil && s.guard.table() != s.under {
		if err := s.check(); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

func (s *guarded) check() error {
	s.under = s.guard.table()
	h, err := s.guard.holder(s.Context(), s.method, s.digest)
	if err != nil {
		return err
	}
	return s.guard.check(s.Context(), s.method, h, s.asked)
}

// shown is a caller's text as logs and errors may have it.
func shown(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), 128)], "?")
}
