package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
)

const secret = "0123456789abcdef-of-a"

func digestText(token string) string {
	d := sha256.Sum256([]byte(token))
	return hex.EncodeToString(d[:])
}

func TestATokenIsKnownByItselfOrByItsDigest(t *testing.T) {
	table, err := Parse([]byte(`tokens:
- {name: a, token: ` + secret + `, lookup: [t1], report: [t2]}
- {name: b, sha256: ` + digestText("another") + `, lookup: ["*"]}
`))
	require.NoError(t, err)
	require.Equal(t, 2, table.Len())
	a := table.Holder(sha256.Sum256([]byte(secret)))
	require.Equal(t, "a", a.Name)
	require.Equal(t, "b", table.Holder(sha256.Sum256([]byte("another"))).Name)
	require.Nil(t, table.Holder(sha256.Sum256([]byte("nobody's"))))
	require.Nil(t, table.Holder(sha256.Sum256(nil)))
}

func TestAFileThatMakesNoSenseIsRefusedWithoutSayingATokenAloud(t *testing.T) {
	for name, c := range map[string]struct{ file, says string }{
		"empty":         {"", "no YAML list"},
		"no tokens":     {"tokens: []", "at least one"},
		"no name":       {"tokens: [{token: " + secret + ", lookup: [t]}]", "token 1 has no name"},
		"no token":      {"tokens: [{name: a, lookup: [t]}]", "either `token:` or `sha256:`"},
		"both":          {"tokens: [{name: a, token: " + secret + ", sha256: x, lookup: [t]}]", "either `token:` or `sha256:`"},
		"short":         {"tokens: [{name: a, token: hunter2, lookup: [t]}]", "too short"},
		"odd":           {"tokens: [{name: a, token: \"0123456789 abcdef-of-a\", lookup: [t]}]", "characters"},
		"no digest":     {"tokens: [{name: a, sha256: " + secret + ", lookup: [t]}]", "64 hex digits"},
		"nothing to do": {"tokens: [{name: a, token: " + secret + "}]", "may do nothing"},
		"empty tenant":  {"tokens: [{name: a, token: " + secret + ", lookup: [\"\"]}]", "an empty tenant under `lookup:`"},
		"all and some":  {"tokens: [{name: a, token: " + secret + ", report: [\"*\", t]}]", "alone"},
		"twice": {"tokens: [{name: a, token: " + secret + ", lookup: [t]}, {name: b, sha256: " + digestText(secret) + ", lookup: [t]}]",
			`token "b": the same token`},
		"unknown key":    {"tokens: [{name: a, token: " + secret + ", lookups: [t]}]", "a key that is none of"},
		"unknown to all": {"token: [{name: a, token: " + secret + ", lookup: [t]}]", "a key that is none of"},
		"wrong kind":     {"tokens: " + secret, "a value of the wrong kind"},
		"no YAML":        {"tokens: [" + secret, "no YAML list"},
		"two documents":  {"tokens: [{name: a, token: " + secret + ", lookup: [t]}]\n---\ntokens: []", "more than one document"},
	} {
		_, err := Parse([]byte(c.file))
		require.ErrorContains(t, err, c.says, name)
		for _, said := range []string{secret, "hunter2", "0123456789"} {
			require.NotContains(t, err.Error(), said, name)
		}
	}
}

func TestNoFileBreaksTheParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("tokens: -{}[]\"*'\n&!|>ab#%")), 0, 60, -1).Draw(t, "text")
		table, err := Parse([]byte(text))
		require.Equal(t, table == nil, err != nil)
	})
}

func holder(t *testing.T, lookup, report string) *Holder {
	t.Helper()
	table, err := Parse([]byte("tokens: [{name: h, token: " + secret + ", lookup: " + lookup + ", report: " + report + "}]"))
	require.NoError(t, err)
	return table.holders[0]
}

func TestEveryMethodIsHeldToItsRule(t *testing.T) {
	some, all := holder(t, "[mine]", "[theirs]"), holder(t, `["*"]`, `["*"]`)
	for _, c := range []struct {
		method string
		msg    any
		some   bool
	}{
		{"LookupRoute", &pb.LookupRouteRequest{TenantId: "mine"}, true},
		{"LookupRoute", &pb.LookupRouteRequest{TenantId: "theirs"}, false},
		{"LookupRoute", &pb.LookupRouteRequest{}, true},
		{"LookupRoute", &pb.LookupRouteRequest{TenantId: reserved}, true},
		{"LookupRoute", &pb.LookupRouteRequest{TenantId: All}, false},
		{"LookupPDRoute", &pb.LookupPDRouteRequest{TenantId: "theirs"}, false},
		{"RenderTemplate", &pb.RenderTemplateRequest{TenantId: "theirs"}, false},
		{"GetCacheState", &pb.GetCacheStateRequest{TenantId: "mine"}, true},
		{"GetCacheState", &pb.GetCacheStateRequest{TenantId: "theirs"}, false},
		{"ReportCacheState", &pb.CacheStateUpdate{TenantId: "theirs"}, true},
		{"ReportCacheState", &pb.CacheStateUpdate{TenantId: "mine"}, false},
		{"PublishEvent", &pb.CacheEvent{TenantId: "theirs"}, true},
		{"PublishEvent", &pb.CacheEvent{TenantId: "mine"}, false},
		{"StreamCacheEvents", &pb.StreamEventsRequest{TenantId: "mine"}, true},
		{"StreamCacheEvents", &pb.StreamEventsRequest{TenantId: "theirs"}, false},
		{"StreamCacheEvents", &pb.StreamEventsRequest{}, false},
		{"StreamMetrics", &pb.StreamMetricsRequest{}, false},
	} {
		r, ok := rules["/inferencecache.v1alpha1.InferenceCache/"+c.method]
		require.True(t, ok, c.method)
		_, may := r.allows(some, c.msg)
		require.Equal(t, c.some, may, "%s %v", c.method, c.msg)
		_, may = r.allows(all, c.msg)
		require.True(t, may, "%s %v", c.method, c.msg)
	}
}

func TestNoMethodOfTheServiceIsWithoutARule(t *testing.T) {
	for _, m := range pb.InferenceCache_ServiceDesc.Methods {
		require.Contains(t, rules, "/"+pb.InferenceCache_ServiceDesc.ServiceName+"/"+m.MethodName)
	}
	for _, m := range pb.InferenceCache_ServiceDesc.Streams {
		require.Contains(t, rules, "/"+pb.InferenceCache_ServiceDesc.ServiceName+"/"+m.StreamName)
	}
}

func TestABearerHeaderIsReadAsTheyAreWritten(t *testing.T) {
	for header, want := range map[string]string{"Bearer x": "x", "bearer x": "x", "BEARER x.y=": "x.y=", "Basic x": "", "Bearer": "", "Bearer ": "", "": ""} {
		token, ok := bearer(header)
		require.Equal(t, want != "", ok, header)
		if ok {
			require.Equal(t, want, token, header)
		}
	}
	require.Empty(t, strings.Trim("aZ09-._~+/=", tokenCharacters))
}
