package policies_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/policies"
	"inferencecache.io/lookuptier/ranking"
)

const head = "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: team-a}\n"

func parse(docs string) (*policies.Set, error) {
	return policies.Parse(policies.Source{Name: "a.yaml", Data: []byte(docs)})
}

func TestEveryFieldIsRead(t *testing.T) {
	set, err := parse(head + `
spec:
  evictionTTL: 1h30m
  minimumPrefixTokens: 256
  minimumMatchedTokens: 0
  routingFloorScore: "12.5"
  lookupTimeoutMs: 20
  affinityRouting: Disabled
  eviction: LFU
  strategy:
    enableChainMatching: true
    requireChain: true
    enableTenantHot: false
`)
	require.NoError(t, err)
	require.Equal(t, ranking.Policy{
		EvictionTTL: 90 * time.Minute, MinimumPrefixTokens: 256, RoutingFloorScore: 12.5, LookupTimeout: 20 * time.Millisecond,
		ChainMatching: true, RequireChain: true, Eviction: ranking.EvictionLFU,
	}, *set.For("team-a"))
}

func TestWhatAPolicyLeavesOutHasTheDefault(t *testing.T) {
	for name, spec := range map[string]string{
		"no spec": "", "empty spec": "spec:\n", "no fields": "spec: {}\n", "empty strategy": "spec:\n  strategy:\n",
	} {
		set, err := parse(head + spec)
		require.NoError(t, err, name)
		require.Equal(t, 1, set.Len(), name)
		require.Equal(t, ranking.DefaultPolicy(), *set.For("team-a"), name)
	}
}

func TestATenantWithoutAPolicyGetsTheDefault(t *testing.T) {
	set, err := parse(head + "spec: {minimumMatchedTokens: 1}")
	require.NoError(t, err)
	for _, s := range []*policies.Set{set, {}, nil} {
		require.Equal(t, ranking.DefaultPolicy(), *s.For("somebody"))
		require.Equal(t, ranking.DefaultPolicy(), *s.For(""))
	}
	require.EqualValues(t, 1, set.For("team-a").MinimumMatchedTokens)
	require.Zero(t, testing.AllocsPerRun(100, func() { set.For("team-a"); set.For("somebody") }))
}

func TestMaxTTLCoversTheTenantsWithoutAPolicy(t *testing.T) {
	short, err := parse(head + "spec: {evictionTTL: 5m}")
	require.NoError(t, err)
	require.Equal(t, 30*time.Minute, short.MaxTTL())
	long, err := parse(head + "spec: {evictionTTL: 2h}")
	require.NoError(t, err)
	require.Equal(t, 2*time.Hour, long.MaxTTL())
	require.Equal(t, 30*time.Minute, (*policies.Set)(nil).MaxTTL())
}

func TestEmptyDocumentsSayNothing(t *testing.T) {
	for _, docs := range []string{"", "---\n", "# nothing here\n", "---\n---\n---\n", "\n\n", "null\n"} {
		set, err := parse(docs)
		require.NoError(t, err, "%q", docs)
		require.Zero(t, set.Len())
	}
	set, err := parse("---\n" + head + "---\n# none\n---\n" + strings.ReplaceAll(head, "team-a", "team-b") + "---\n")
	require.NoError(t, err)
	require.Equal(t, []string{"team-a", "team-b"}, set.Tenants())
}

func TestJSONIsYAML(t *testing.T) {
	set, err := parse(`{"apiVersion":"inferencecache.io/v1alpha1","kind":"CachePolicy",
		"metadata":{"name":"p","namespace":"team-a","labels":{"x":"y"}},"spec":{"routingFloorScore":"0","minimumMatchedTokens":7}}`)
	require.NoError(t, err)
	require.EqualValues(t, 7, set.For("team-a").MinimumMatchedTokens)
	require.Zero(t, set.For("team-a").RoutingFloorScore)
}

func TestAnchorsStandForWhatTheyName(t *testing.T) {
	set, err := parse("apiVersion: &v inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: a}\nspec: &s {strategy: {requireChain: true}}\n---\n" +
		"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: &n b, name: *n}\n")
	require.NoError(t, err)
	require.True(t, set.For("a").RequireChain)
	require.Equal(t, []string{"a", "b"}, set.Tenants())
}

// The line is that of a document that begins with head (3 lines).
func TestMistakesAreNamedByFileLineAndFieldWithWhatIsAllowed(t *testing.T) {
	for _, tc := range []struct{ name, docs, want string }{
		{"wrong apiVersion", "apiVersion: v1\nkind: CachePolicy\nmetadata: {namespace: a}",
			`a.yaml:1: apiVersion: is "v1"; it must be "inferencecache.io/v1alpha1"`},
		{"no apiVersion", "kind: CachePolicy\nmetadata: {namespace: a}",
			`a.yaml:1: apiVersion: is missing; write "inferencecache.io/v1alpha1"`},
		{"wrong kind", "apiVersion: inferencecache.io/v1alpha1\nkind: ConfigMap\nmetadata: {namespace: a}",
			`a.yaml:2: kind: is "ConfigMap"; it must be "CachePolicy"`},
		{"no metadata", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy",
			`a.yaml:1: metadata.namespace: is missing; write the tenant that the policy is for`},
		{"no namespace", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata:\n  name: x",
			`a.yaml:3: metadata.namespace: is missing; write the tenant that the policy is for`},
		{"empty namespace", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: \"\"}",
			`a.yaml:3: metadata.namespace: is ""; write the tenant that the policy is for, as a string`},
		{"numeric namespace", "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: 12}",
			`a.yaml:3: metadata.namespace: is the number 12; write the tenant that the policy is for, as a string`},
		{"unknown field at the top", head + "sepc: {}",
			`a.yaml:4: "sepc": is no field of a CachePolicy; the fields are apiVersion, kind, metadata, spec`},
		{"unknown field of spec", head + "spec:\n  evictionTtl: 30m",
			`a.yaml:5: spec."evictionTtl": is no field of spec; the fields are evictionTTL, minimumPrefixTokens,`},
		{"unknown field of strategy", head + "spec:\n  strategy:\n    chain: true",
			`a.yaml:6: spec.strategy."chain": is no field of spec.strategy; the fields are enableChainMatching, requireChain, enableTenantHot`},
		{"a field twice", head + "spec:\n  evictionTTL: 1m\n  evictionTTL: 2m",
			`a.yaml:6: spec.evictionTTL: stands twice, first at line 5; remove one`},
		{"spec is a list", head + "spec: [1]",
			`a.yaml:4: spec: is a list; it must be a mapping with the fields evictionTTL,`},
		{"the document is a string", "hello",
			`a.yaml:1: is "hello"; it must be a mapping with the fields apiVersion, kind, metadata, spec`},
		{"duration without unit", head + "spec:\n  evictionTTL: 30",
			`a.yaml:5: spec.evictionTTL: is the number 30; it must be a duration of at least 1ms with its unit, such as "30m"`},
		{"duration of zero", head + "spec: {evictionTTL: 0s}", `a.yaml:4: spec.evictionTTL: is "0s"; it must be a duration`},
		{"duration below the clock", head + "spec: {evictionTTL: 10us}", `a.yaml:4: spec.evictionTTL: is "10us"; it must be a duration of at least 1ms`},
		{"duration below zero", head + "spec: {evictionTTL: -5m}", `a.yaml:4: spec.evictionTTL: is "-5m"`},
		{"duration of nonsense", head + "spec: {evictionTTL: soon}", `a.yaml:4: spec.evictionTTL: is "soon"`},
		{"duration left empty", head + "spec:\n  evictionTTL:\n", `a.yaml:5: spec.evictionTTL: is empty; it must be a duration`},
		{"negative count", head + "spec: {minimumPrefixTokens: -1}",
			`a.yaml:4: spec.minimumPrefixTokens: is the number -1; it must be a whole number from 0 to 2147483647, without quotes`},
		{"quoted count", head + "spec: {minimumMatchedTokens: \"64\"}", `a.yaml:4: spec.minimumMatchedTokens: is "64"; it must be a whole number`},
		{"fractional count", head + "spec: {lookupTimeoutMs: 1.5}", `a.yaml:4: spec.lookupTimeoutMs: is the number 1.5; it must be a whole number`},
		{"octal or decimal?", head + "spec: {lookupTimeoutMs: 010}", `a.yaml:4: spec.lookupTimeoutMs: is the number 010; it must be a whole number`},
		{"count too large", head + "spec: {lookupTimeoutMs: 2147483648}", `a.yaml:4: spec.lookupTimeoutMs: is the number 2147483648`},
		{"unquoted floor", head + "spec: {routingFloorScore: 0.1}",
			`a.yaml:4: spec.routingFloorScore: is the number 0.1; it must be a quoted decimal number such as "0", "0.1" or "12.5"`},
		{"floor with an exponent", head + "spec: {routingFloorScore: \"1e3\"}", `a.yaml:4: spec.routingFloorScore: is "1e3"`},
		{"floor below zero", head + "spec: {routingFloorScore: \"-1\"}", `a.yaml:4: spec.routingFloorScore: is "-1"`},
		{"floor with a leading zero", head + "spec: {routingFloorScore: \"00.1\"}", `a.yaml:4: spec.routingFloorScore: is "00.1"`},
		{"floor with 7 decimals", head + "spec: {routingFloorScore: \"0.1234567\"}", `a.yaml:4: spec.routingFloorScore: is "0.1234567"`},
		{"floor of 9 digits", head + "spec: {routingFloorScore: \"123456789\"}", `a.yaml:4: spec.routingFloorScore: is "123456789"`},
		{"affinity", head + "spec: {affinityRouting: enabled}",
			`a.yaml:4: spec.affinityRouting: is "enabled"; it must be Enabled (the default) or Disabled`},
		{"affinity as a boolean", head + "spec: {affinityRouting: false}", `a.yaml:4: spec.affinityRouting: is false; it must be Enabled`},
		{"eviction", head + "spec: {eviction: FIFO}", `a.yaml:4: spec.eviction: is "FIFO"; it must be LRU (the default) or LFU`},
		{"boolean as text", head + "spec: {strategy: {enableTenantHot: \"no\"}}",
			`a.yaml:4: spec.strategy.enableTenantHot: is "no"; it must be true or false, without quotes`},
		{"requireChain without chains", head + "spec:\n  strategy:\n    requireChain: true\n    enableChainMatching: false",
			`a.yaml:6: spec.strategy.requireChain: is true while enableChainMatching is false`},
		{"merge key", head + "spec:\n  <<: {evictionTTL: 5m}", `a.yaml:5: spec."<<": is no field of spec`},
		{"not YAML", head + "spec: {", `a.yaml:4: not YAML: `},
		{"bytes that are no text", "\xff\xfe\xfa", `a.yaml: not YAML: `},
		{"a second document", head + "---\n" + strings.ReplaceAll(head, "team-a", "team-b") + "spec: {eviction: MRU}",
			`a.yaml:8: spec.eviction: is "MRU"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, err := parse(tc.docs)
			require.Nil(t, set)
			var problems policies.Problems
			require.ErrorAs(t, err, &problems)
			require.Len(t, problems, 1, "%v", err)
			require.Contains(t, err.Error(), tc.want)
		})
	}
}

func TestAFileOfAbsurdSizeIsRefused(t *testing.T) {
	_, err := parse(strings.Repeat("#\n", 1<<20))
	require.ErrorContains(t, err, "a.yaml: the file is larger than the 1048576 bytes that a policy file may have; split it")
}

func TestTwoPoliciesForOneNamespaceAreBothNamed(t *testing.T) {
	_, err := policies.Parse(
		policies.Source{Name: "a.yaml", Data: []byte(head)},
		policies.Source{Name: "b.yaml", Data: []byte("\n" + head)},
	)
	require.EqualError(t, err, `b.yaml:4: metadata.namespace: "team-a" has a policy already, at a.yaml:3; a namespace can have one, so remove one of them`)
	_, err = parse(head + "---\n" + head)
	require.ErrorContains(t, err, `a.yaml:7: metadata.namespace: "team-a" has a policy already, at a.yaml:3`)
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, err := policies.Parse(
		policies.Source{Name: "b.yaml", Data: []byte(head + "spec: {eviction: X, lookupTimeoutMs: -1, strategy: {requireChain: 3}, foo: 1}\n---\nkind: Pod\n")},
		policies.Source{Name: "a.yaml", Data: []byte("a: [\n")},
	)
	var problems policies.Problems
	require.ErrorAs(t, err, &problems)
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.File+" "+p.Field)
	}
	require.ElementsMatch(t, []string{
		"a.yaml ", `b.yaml spec."foo"`, "b.yaml spec.lookupTimeoutMs", "b.yaml spec.eviction", "b.yaml spec.strategy.requireChain",
		"b.yaml apiVersion", "b.yaml kind", "b.yaml metadata.namespace",
	}, fields)
	require.Equal(t, "a.yaml", problems[0].File, "in the order of the files")
	require.Len(t, strings.Split(err.Error(), "\n"), len(problems))
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "spec: {evictionTTL: 5m, routingFloorScore: \"0.5\", strategy: {requireChain: true}}"))
	f.Add([]byte(head + "---\n" + head))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? {a: b}\n: c\n? [1]\n: 2\n? !!binary x\n: 3"))
	f.Add([]byte("metadata: &m {namespace: *m}"))
	f.Add([]byte("\x00\xff---\n..."))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := policies.Parse(policies.Source{Name: "f.yaml", Data: data})
		if err != nil {
			var problems policies.Problems
			require.ErrorAs(t, err, &problems)
			require.NotEmpty(t, problems)
			require.Nil(t, set)
			for _, p := range problems {
				require.NotEmpty(t, p.Text)
				require.NotContains(t, p.String(), "\n", "one problem, one line")
			}
			return
		}
		for _, tenant := range set.Tenants() {
			require.NotEmpty(t, tenant)
			p := set.For(tenant)
			require.GreaterOrEqual(t, p.EvictionTTL, time.Millisecond)
			require.LessOrEqual(t, p.EvictionTTL, set.MaxTTL())
			require.GreaterOrEqual(t, p.MinimumPrefixTokens, int64(0))
			require.GreaterOrEqual(t, p.MinimumMatchedTokens, int64(0))
			require.GreaterOrEqual(t, p.LookupTimeout, time.Duration(0))
			require.GreaterOrEqual(t, p.RoutingFloorScore, float32(0))
			require.True(t, p.ChainMatching || !p.RequireChain)
		}
	})
}
