package integration_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/integration/conformance"
	"inferencecache.io/lookuptier/integration/pod"
	"inferencecache.io/lookuptier/integration/rig"
	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

func TestAPodServesEveryTopology(t *testing.T) {
	certs := rig.NewCerts(t)
	for name, start := range map[string]func(t *testing.T) (redisURL string){
		"embedded":   func(*testing.T) string { return "" },
		"standalone": func(t *testing.T) string { return rig.Standalone(t).URL() },
		"password":   func(t *testing.T) string { return rig.Standalone(t, rig.WithPassword("p@ss/w:rd,%")).URL() },
		"ACL user": func(t *testing.T) string {
			return rig.Standalone(t, rig.WithACL("user lookupd on >secret ~ic1:* resetchannels +@all -@admin")).URLAs("lookupd", "secret")
		},
		"TLS": func(t *testing.T) string {
			return rig.Standalone(t, rig.WithTLS(certs)).URL() + "?ca_file=" + url.QueryEscape(certs.CAFile)
		},
		"mTLS and password": func(t *testing.T) string {
			return rig.Standalone(t, rig.WithClientCerts(certs), rig.WithPassword("pw")).URL() + "?" + url.Values{
				"ca_file": {certs.CAFile}, "cert_file": {certs.CertFile}, "key_file": {certs.KeyFile},
			}.Encode()
		},
		"Sentinel":           func(t *testing.T) string { return rig.Sentinel(t).URL() },
		"Sentinel, password": func(t *testing.T) string { return rig.Sentinel(t, rig.WithPassword("pw")).URL() },
		"Cluster":            func(t *testing.T) string { return rig.Cluster(t, 3).URL() },
		"Cluster, password":  func(t *testing.T) string { return rig.Cluster(t, 3, rig.WithPassword("pw")).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			if u := start(t); u != "" {
				flags = []string{"--redis", u}
			}
			live(t, pod.Start(t, flags...).Client, "tenant")
		})
	}
}

func TestAPodTrustsNoStrangersCertificate(t *testing.T) {
	t.Parallel()
	stranger := rig.NewCerts(t)
	u := rig.Standalone(t, rig.WithTLS(rig.NewCerts(t))).URL() + "?ca_file=" + url.QueryEscape(stranger.CAFile)
	p := pod.StartUnready(t, "--redis", u)
	rig.Eventually(t, settleLimit, "the reason in /readyz", func() error { return mentions(p.Ready(), "certificate") })
	failsOpen(t, p.Client)
}

func TestAPodWithAWrongPasswordIsNotReadyAndSaysWhy(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(t, rig.WithPassword("right"))
	p := pod.StartUnready(t, "--redis", s.URLAs("", "wrong-secret"))
	rig.Eventually(t, settleLimit, "the reason in /readyz", func() error { return mentions(p.Ready(), "WRONGPASS") })
	failsOpen(t, p.Client)
	require.NotContains(t, p.Process().Output(), "wrong-secret", "a password in the log")
}

func TestSentinelFailoverCostsNoLookup(t *testing.T) {
	t.Parallel()
	set := rig.Sentinel(t)
	p := pod.Start(t, "--redis", set.URL())
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
	remembers(t, p, hashes)
	traffic := lookups(t, p.Client, "tenant", hashes)
	old := set.Failover()
	comesBack(t, p.Client, "tenant")
	old.Restart()
	comesBack(t, p.Client, "another")
	traffic.stop()
	p.WaitReady()
}

func TestARestartedRedisBehindMutualTLSCostsNoLookup(t *testing.T) {
	t.Parallel()
	certs := rig.NewCerts(t)
	s := rig.Standalone(t, rig.WithTLS(certs), rig.WithClientCerts(certs), rig.WithPassword("secret"))
	u := s.URL() + "?" + url.Values{"ca_file": {certs.CAFile}, "cert_file": {certs.CertFile}, "key_file": {certs.KeyFile}}.Encode()
	p := pod.Start(t, "--redis", u)
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
	remembers(t, p, hashes)
	traffic := lookups(t, p.Client, "tenant", hashes)
	s.Kill()
	failsOpen(t, p.Client)
	refusesWrites(t, p.Client, "tenant")
	s.Restart()
	comesBack(t, p.Client, "tenant")
	traffic.stop()
	p.WaitReady()
}

func TestALostClusterNodeCostsNoLookup(t *testing.T) {
	t.Parallel()
	set := rig.ClusterWithReplicas(t, 3)
	p := pod.Start(t, "--redis", set.URL())
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
	remembers(t, p, hashes)
	traffic := lookups(t, p.Client, "tenant", hashes)
	old := set.Owner(store.KeysOf(ranking.Scope{Tenant: "tenant", Model: model}, 0).Head())
	old.Kill()
	comesBack(t, p.Client, "tenant")
	old.Restart()
	set.WaitOK()
	comesBack(t, p.Client, "another")
	traffic.stop()
	p.WaitReady()
}

func TestASlotThatMovesCostsNoLookup(t *testing.T) {
	t.Parallel()
	set := rig.Cluster(t, 3)
	p, other := pod.Start(t, "--redis", set.URL()), pod.Start(t, "--redis", set.URL())
	hashes := chain(1, 20)
	require.NoError(t, report(t.Context(), p.Client, "tenant", "r1", hashes))
	remembers(t, p, hashes)
	traffic := lookups(t, p.Client, "tenant", hashes)
	key := store.KeysOf(ranking.Scope{Tenant: "tenant", Model: model}, 0).Head()
	for range 3 {
		set.MoveSlot(key)
		require.NoError(t, conformance.Publish(t.Context(), other.Client, &pb.CacheEvent{
			Type: pb.CacheEvent_ALL_CLEARED, TenantId: "tenant", ModelId: model, ReplicaId: "r1"}))
		rig.Eventually(t, settleLimit, "what another pod cleared", answers(t, p.Client, "tenant", hashes, "NO_HINT", ""))
		require.NoError(t, report(t.Context(), other.Client, "tenant", "r1", hashes))
		rig.Eventually(t, settleLimit, "what another pod wrote", answers(t, p.Client, "tenant", hashes, "PREFIX_MATCH", "r1"))
	}
	comesBack(t, p.Client, "tenant")
	traffic.stop()
}
