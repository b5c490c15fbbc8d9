package deploy

import (
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// deployments are the folders that somebody applies.
var deployments = []string{
	"overlays/try", "overlays/sentinel", "overlays/cluster", "overlays/tls", "examples/vllm", "examples/sglang", "examples/tls",
}

// manifest is what one folder renders to.
type manifest struct {
	folder  string
	objects map[string]meta.Object // by kind/name
}

// render does what `kubectl apply -k` does before it sends anything, and decodes the result so
// strictly that a misspelt field fails.
func render(t *testing.T, folder string) manifest {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	require.NoError(t, err)
	m := manifest{folder, map[string]meta.Object{}}
	for _, r := range rendered.Resources() {
		id := r.GetKind() + "/" + r.GetName()
		text, err := r.AsYAML()
		require.NoError(t, err)
		object := newObject(t, r.GetApiVersion(), r.GetKind())
		require.NoError(t, yaml.UnmarshalStrict(text, object), "%s of %s:\n%s", id, folder, text)
		m.objects[id] = object
	}
	return m
}

func newObject(t *testing.T, version, kind string) meta.Object {
	t.Helper()
	switch version + " " + kind {
	case "apps/v1 Deployment":
		return new(apps.Deployment)
	case "apps/v1 StatefulSet":
		return new(apps.StatefulSet)
	case "v1 Service":
		return new(core.Service)
	case "v1 ServiceAccount":
		return new(core.ServiceAccount)
	case "v1 ConfigMap":
		return new(core.ConfigMap)
	case "policy/v1 PodDisruptionBudget":
		return new(policy.PodDisruptionBudget)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return new(autoscaling.HorizontalPodAutoscaler)
	case "networking.k8s.io/v1 NetworkPolicy":
		return new(networking.NetworkPolicy)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return new(monitoring.ServiceMonitor)
	case "monitoring.coreos.com/v1 PodMonitor":
		return new(monitoring.PodMonitor)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return new(monitoring.PrometheusRule)
	}
	t.Fatalf("%s %s: this test does not know how to decode it", version, kind)
	return nil
}

func get[T meta.Object](t *testing.T, m manifest, id string) T {
	t.Helper()
	object, ok := m.objects[id].(T)
	require.True(t, ok, "%s has no %s", m.folder, id)
	return object
}

// of are all objects of one type.
func of[T meta.Object](m manifest) []T {
	var list []T
	for _, object := range m.objects {
		if o, ok := object.(T); ok {
			list = append(list, o)
		}
	}
	return list
}

// workload is what starts pods.
type workload struct {
	name     string
	selector *meta.LabelSelector
	template core.PodTemplateSpec
}

func (m manifest) workloads() []workload {
	var list []workload
	for _, d := range of[*apps.Deployment](m) {
		list = append(list, workload{d.Name, d.Spec.Selector, d.Spec.Template})
	}
	for _, s := range of[*apps.StatefulSet](m) {
		list = append(list, workload{s.Name, s.Spec.Selector, s.Spec.Template})
	}
	return list
}

// ours tells which of our commands a container runs; "" = somebody else's image.
func ours(c core.Container) string {
	name, ok := strings.CutPrefix(strings.Split(c.Image, ":")[0], "lookup-tier/")
	if !ok {
		return ""
	}
	return name
}
