package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func everyDeployment(t *testing.T, check func(t *testing.T, m manifest)) {
	for _, folder := range deployments {
		t.Run(folder, func(t *testing.T) { check(t, render(t, folder)) })
	}
}

func TestEveryOverlayBuildsAndDecodesStrictly(t *testing.T) {
	everyDeployment(t, func(t *testing.T, m manifest) { require.NotEmpty(t, m.workloads()) })
}

func TestContainersOfTheTierCanDoLittle(t *testing.T) {
	everyDeployment(t, func(t *testing.T, m manifest) {
		for _, w := range m.workloads() {
			pod := w.template.Spec
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				if c.Name == "engine" {
					continue // somebody else's
				}
				at := w.name + "/" + c.Name
				s := c.SecurityContext
				require.NotNil(t, s, at)
				require.True(t, *s.ReadOnlyRootFilesystem, at)
				require.False(t, *s.AllowPrivilegeEscalation, at)
				require.Equal(t, []core.Capability{"ALL"}, s.Capabilities.Drop, at)
				require.Empty(t, s.Capabilities.Add, at)
				nonRoot := s.RunAsNonRoot
				if nonRoot == nil && pod.SecurityContext != nil {
					nonRoot = pod.SecurityContext.RunAsNonRoot
				}
				require.True(t, nonRoot != nil && *nonRoot, at)
				require.False(t, c.Resources.Limits.Memory().IsZero(), "%s: no memory limit", at)
				require.False(t, c.Resources.Requests.Memory().IsZero(), "%s: no memory request", at)
			}
			if w.template.Spec.Containers[0].Name != "engine" {
				require.NotNil(t, pod.AutomountServiceAccountToken, w.name)
				require.False(t, *pod.AutomountServiceAccountToken, w.name)
			}
		}
	})
}

func TestOurContainersKeepTheHeapUnderTheirLimit(t *testing.T) {
	everyDeployment(t, func(t *testing.T, m manifest) {
		for _, w := range m.workloads() {
			for _, c := range w.template.Spec.Containers {
				if ours(c) == "" {
					continue
				}
				limit := env(c, "GOMEMLIMIT")
				require.NotNil(t, limit, c.Name)
				require.Equal(t, "requests.memory", limit.ValueFrom.ResourceFieldRef.Resource)
				require.Less(t, c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value())
				require.True(t, c.Resources.Limits.Cpu().IsZero(), "a CPU limit throttles")
				require.NotNil(t, c.LivenessProbe.HTTPGet)
				require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
			}
		}
	})
}

func env(c core.Container, name string) *core.EnvVar {
	for i := range c.Env {
		if c.Env[i].Name == name {
			return &c.Env[i]
		}
	}
	return nil
}

func TestSelectorsFindTheirPods(t *testing.T) {
	everyDeployment(t, func(t *testing.T, m manifest) {
		finds := func(what string, s *meta.LabelSelector) {
			selector, err := meta.LabelSelectorAsSelector(s)
			require.NoError(t, err)
			for _, w := range m.workloads() {
				if selector.Matches(labels.Set(w.template.Labels)) {
					return
				}
			}
			t.Errorf("%s selects no pod of this folder: %s", what, selector)
		}
		for _, w := range m.workloads() {
			selector, err := meta.LabelSelectorAsSelector(w.selector)
			require.NoError(t, err)
			require.True(t, selector.Matches(labels.Set(w.template.Labels)), w.name)
			for _, spread := range w.template.Spec.TopologySpreadConstraints {
				finds("topology spread of "+w.name, spread.LabelSelector)
			}
		}
		for _, s := range of[*core.Service](m) {
			finds("Service "+s.Name, &meta.LabelSelector{MatchLabels: s.Spec.Selector})
		}
		for _, p := range of[*policy.PodDisruptionBudget](m) {
			finds("PodDisruptionBudget "+p.Name, p.Spec.Selector)
		}
		for _, p := range of[*networking.NetworkPolicy](m) {
			finds("NetworkPolicy "+p.Name, &p.Spec.PodSelector)
		}
		for _, p := range of[*monitoring.PodMonitor](m) {
			finds("PodMonitor "+p.Name, &p.Spec.Selector)
		}
	})
}

// Secrets are brought by whoever deploys; everything else that is mounted or read must be there.
func TestWhatPodsReferToIsThere(t *testing.T) {
	everyDeployment(t, func(t *testing.T, m manifest) {
		for _, w := range m.workloads() {
			volumes := map[string]bool{}
			for _, v := range w.template.Spec.Volumes {
				volumes[v.Name] = true
				if v.ConfigMap != nil {
					get[*core.ConfigMap](t, m, "ConfigMap/"+v.ConfigMap.Name)
				}
			}
			for _, c := range w.template.Spec.Containers {
				for _, v := range c.VolumeMounts {
					require.True(t, volumes[v.Name], "%s mounts %s", c.Name, v.Name)
				}
				for _, e := range c.Env {
					if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
						ref := e.ValueFrom.ConfigMapKeyRef
						if ref.Optional != nil && *ref.Optional {
							continue
						}
						require.Contains(t, get[*core.ConfigMap](t, m, "ConfigMap/"+ref.Name).Data, ref.Key)
					}
				}
			}
			if name := w.template.Spec.ServiceAccountName; name != "" {
				get[*core.ServiceAccount](t, m, "ServiceAccount/"+name)
			}
		}
		for _, h := range of[*autoscaling.HorizontalPodAutoscaler](m) {
			target := get[*apps.Deployment](t, m, "Deployment/"+h.Spec.ScaleTargetRef.Name)
			require.Nil(t, target.Spec.Replicas, "replicas would fight with the autoscaler")
		}
	})
}

func TestGatewaysCanReachEachPodAndPrometheusTheMetrics(t *testing.T) {
	m := render(t, "overlays/try")
	headless := get[*core.Service](t, m, "Service/lookupd-headless")
	require.Equal(t, core.ClusterIPNone, headless.Spec.ClusterIP)
	require.NotEqual(t, core.ClusterIPNone, get[*core.Service](t, m, "Service/lookupd").Spec.ClusterIP)

	monitor := get[*monitoring.ServiceMonitor](t, m, "ServiceMonitor/lookupd")
	selector, err := meta.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(t, err)
	scraped := 0
	for _, s := range of[*core.Service](m) {
		if selector.Matches(labels.Set(s.Labels)) {
			scraped++
			require.Equal(t, headless.Name, s.Name)
		}
	}
	require.Equal(t, 1, scraped, "a pod that is scraped through two Services counts twice")
	ports := map[string]int32{}
	for _, p := range headless.Spec.Ports {
		ports[p.Name] = p.Port
	}
	require.Equal(t, map[string]int32{"grpc": 9090, "http": 8080}, ports)
	require.Equal(t, "http", monitor.Spec.Endpoints[0].Port)
}

func TestAPodHasTheTimeToEndByItself(t *testing.T) {
	for _, folder := range []string{"overlays/try", "overlays/tls"} {
		pod := get[*apps.Deployment](t, render(t, folder), "Deployment/lookupd").Spec.Template.Spec
		flags := map[string]time.Duration{}
		for _, arg := range pod.Containers[0].Args {
			var s string
			for _, name := range []string{"shutdown-delay", "drain"} {
				if n, _ := fmt.Sscanf(arg, "--"+name+"=%s", &s); n == 1 {
					d, err := time.ParseDuration(s)
					require.NoError(t, err)
					flags[name] = d
				}
			}
		}
		require.Positive(t, flags["shutdown-delay"])
		require.Positive(t, flags["drain"])
		grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
		require.GreaterOrEqual(t, grace, flags["shutdown-delay"]+flags["drain"]+10*time.Second)
	}
}

func TestKubernetesCanAskForHealthWithAndWithoutTLS(t *testing.T) {
	plain := get[*apps.Deployment](t, render(t, "overlays/try"), "Deployment/lookupd").Spec.Template.Spec.Containers[0]
	require.NotNil(t, plain.ReadinessProbe.GRPC)
	tls := get[*apps.Deployment](t, render(t, "overlays/tls"), "Deployment/lookupd").Spec.Template.Spec.Containers[0]
	require.Nil(t, tls.ReadinessProbe.GRPC, "kubelet speaks no TLS to a gRPC probe")
	require.Equal(t, "/readyz", tls.ReadinessProbe.HTTPGet.Path)
}

func TestNoVariableOfAServiceIsTakenForAFlag(t *testing.T) {
	for _, folder := range []string{"overlays/try", "overlays/tls"} {
		links := get[*apps.Deployment](t, render(t, folder), "Deployment/lookupd").Spec.Template.Spec.EnableServiceLinks
		require.NotNil(t, links)
		require.False(t, *links)
	}
}

func TestWithTLSSecretsAreReadableForTheUserAndServicesSaySo(t *testing.T) {
	m := render(t, "overlays/tls")
	pod := get[*apps.Deployment](t, m, "Deployment/lookupd").Spec.Template.Spec
	secrets := 0
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			secrets++
			require.EqualValues(t, 0o440, *v.Secret.DefaultMode)
		}
	}
	require.Equal(t, 3, secrets)
	require.Equal(t, *pod.SecurityContext.RunAsGroup, *pod.SecurityContext.FSGroup)
	for _, s := range of[*core.Service](m) {
		require.Equal(t, "https", *s.Spec.Ports[0].AppProtocol)
	}
}

func TestASidecarNeverTakesItsEngineOutOfService(t *testing.T) {
	for _, folder := range []string{"examples/vllm", "examples/sglang", "examples/tls"} {
		template := render(t, folder).workloads()[0].template
		require.Len(t, template.Spec.Containers, 2)
		require.Equal(t, "true", template.Labels["inferencecache.io/kvsidecar"])
		require.NotEmpty(t, template.Annotations["inferencecache.io/model-id"])
		i := slices.IndexFunc(template.Spec.Containers, func(c core.Container) bool { return ours(c) == "kvsidecar" })
		require.GreaterOrEqual(t, i, 0, folder)
		require.Nil(t, template.Spec.Containers[i].ReadinessProbe)
		require.Nil(t, template.Spec.Containers[i].StartupProbe)
	}
}

// A pod that reaches Redis through TLS and sidecars that do not are half a tier.
func TestSidecarsReachARedisWithTLSAsThePodsDo(t *testing.T) {
	pods, engines := render(t, "overlays/tls"), render(t, "examples/tls")
	template := engines.workloads()[0].template
	require.Equal(t, redisOf(t, pods, "lookupd-redis"), redisOf(t, engines, "kvsidecar-redis"))

	var secret string
	for _, v := range template.Spec.Volumes {
		if v.Secret != nil {
			secret = v.Name
			require.EqualValues(t, 0o444, *v.Secret.DefaultMode, "the engine's pod has no group of ours")
		}
	}
	for _, c := range template.Spec.Containers {
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == secret })
		require.Equal(t, ours(c) == "kvsidecar", mounted, c.Name)
		if !mounted {
			continue
		}
		for name, key := range map[string]string{"CA": "ca.crt", "USERNAME": "username", "PASSWORD": "password"} {
			at := env(c, "KVSIDECAR_REDIS_"+name+"_FILE")
			require.NotNil(t, at, name)
			require.Equal(t, c.VolumeMounts[0].MountPath+"/"+key, at.Value)
		}
	}
}

// redisOf is the part of a ConfigMap that pods and sidecars must agree in.
func redisOf(t *testing.T, m manifest, name string) map[string]string {
	t.Helper()
	for _, c := range of[*core.ConfigMap](m) {
		if strings.HasPrefix(c.Name, name) {
			return c.Data
		}
	}
	t.Fatalf("%s has no ConfigMap %s", m.folder, name)
	return nil
}
