package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
)

// A flag that does not exist, or a value of the wrong kind, keeps a container from starting. So each
// container's command line goes to the real command, with --version behind it: the command reads all
// of it and ends. What the flags point at is not looked at.
func accepts(t *testing.T, command string, args []string, environment map[string]string) {
	t.Helper()
	expanded := make([]string, len(args), len(args)+1)
	for i, arg := range args {
		expanded[i] = reference.ReplaceAllStringFunc(arg, func(ref string) string {
			value, ok := environment[ref[2:len(ref)-1]]
			require.True(t, ok, "%s: %s stands for nothing", command, ref)
			return value
		})
	}
	run := exec.Command(binary(t, command), append(expanded, "--version")...)
	run.Env = os.Environ()
	for name, value := range environment {
		run.Env = append(run.Env, name+"="+value)
	}
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", command, strings.Join(expanded, " "), out)

	help, err := exec.Command(binary(t, command), "--help").CombinedOutput()
	require.NoError(t, err)
	prefix := strings.ToUpper(command) + "_"
	for name := range environment {
		if strings.HasPrefix(name, prefix) {
			require.Contains(t, string(help), name, "%s does not read it", command)
		}
	}
}

var reference = regexp.MustCompile(`\$\([A-Z_]+\)`)

func TestContainersAreStartedWithFlagsThatTheirCommandHas(t *testing.T) {
	everyDeployment(t, func(t *testing.T, m manifest) {
		seen := 0
		for _, w := range m.workloads() {
			for _, c := range w.template.Spec.Containers {
				if command := ours(c); command != "" {
					seen++
					require.Empty(t, c.Command, "the image has the entry point")
					accepts(t, command, c.Args, environment(t, m, c))
				}
			}
		}
		require.Equal(t, 1, seen)
	})
}

// environment of a container; what only a cluster knows is made up.
func environment(t *testing.T, m manifest, c core.Container) map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			values[e.Name] = e.Value
		case from.ConfigMapKeyRef != nil:
			ref := from.ConfigMapKeyRef
			// Kubernetes sets no variable for an optional key that is not there.
			if value, ok := get[*core.ConfigMap](t, m, "ConfigMap/"+ref.Name).Data[ref.Key]; ok {
				values[e.Name] = value
			}
		case from.ResourceFieldRef != nil:
			values[e.Name] = c.Resources.Requests.Memory().String()
			if strings.HasSuffix(values[e.Name], "Mi") {
				values[e.Name] += "B" // as Go wants it; the cluster gives plain bytes
			}
		default:
			values[e.Name] = "from-the-pod"
		}
	}
	return values
}

func TestARedisURLOfAnOverlayIsOne(t *testing.T) {
	for folder, want := range map[string]string{
		"overlays/try": "redis://redis:", "overlays/sentinel": "?master_name=lookup-tier", "overlays/cluster": "redis://redis-cluster-0", "overlays/tls": "rediss://",
	} {
		m := render(t, folder)
		url := redisOf(t, m, "lookupd-redis")["url"]
		require.Contains(t, url, want)
		// lookupd reads the whole URL before it looks at its policies.
		out, err := exec.Command(binary(t, "lookupd"), "--redis", url, "--policy-dir", "/nowhere").CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "--policy-dir", "%s: %s", folder, url)
	}
}

func TestThePoliciesOfTheBaseAreGood(t *testing.T) {
	out, err := exec.Command(binary(t, "lookupctl"), "policy", "check", "base/policies").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
