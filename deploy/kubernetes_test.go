package deploy

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// The manifests, by kind. A workload is what has pods.
type manifests struct {
	workloads []workload
	services  []core.Service
	budgets   []policy.PodDisruptionBudget
	policies  []networking.NetworkPolicy
	monitors  []monitoring.ServiceMonitor
}

type workload struct {
	file     string
	selector *meta.LabelSelector
	replicas int32
	pod      core.PodTemplateSpec
	stateful bool
	settles  int32 // minReadySeconds
}

func (w *workload) container() core.Container { return w.pod.Spec.Containers[0] }

// secretFiles are the files that the program's secret is mounted as. The kubelet changes them with
// it.
func (w *workload) secretFiles(t *testing.T) (paths []string) {
	t.Helper()
	for _, mount := range w.container().VolumeMounts {
		require.Empty(t, mount.SubPath, "%s: a file that is mounted by subPath never changes", w.file)
		for _, v := range w.pod.Spec.Volumes {
			if v.Name != mount.Name || v.Secret == nil {
				continue
			}
			require.Equal(t, w.container().Name, v.Secret.SecretName)
			for _, item := range v.Secret.Items {
				paths = append(paths, mount.MountPath+"/"+item.Path)
			}
		}
	}
	return paths
}

// read decodes every document strictly: a field that the API does not have fails.
func read(t *testing.T) (all manifests) {
	t.Helper()
	files, err := filepath.Glob("kubernetes/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, doc := range split(t, text) {
			all.add(t, file, doc)
		}
	}
	require.Len(t, all.workloads, 5)
	return all
}

func split(t *testing.T, text []byte) (all [][]byte) {
	t.Helper()
	docs := documents.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for {
		doc := make([]byte, 1<<16)
		n, err := docs.Read(doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, doc[:n])
	}
}

func (m *manifests) add(t *testing.T, file string, doc []byte) {
	t.Helper()
	var kind meta.TypeMeta
	require.NoError(t, yaml.Unmarshal(doc, &kind), file)
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		d := strictly[apps.Deployment](t, file, doc)
		m.workloads = append(m.workloads,
			workload{file, d.Spec.Selector, *d.Spec.Replicas, d.Spec.Template, false, d.Spec.MinReadySeconds})
	case "apps/v1 StatefulSet":
		s := strictly[apps.StatefulSet](t, file, doc)
		m.workloads = append(m.workloads,
			workload{file, s.Spec.Selector, *s.Spec.Replicas, s.Spec.Template, true, s.Spec.MinReadySeconds})
	case "v1 Service":
		m.services = append(m.services, strictly[core.Service](t, file, doc))
	case "policy/v1 PodDisruptionBudget":
		m.budgets = append(m.budgets, strictly[policy.PodDisruptionBudget](t, file, doc))
	case "networking.k8s.io/v1 NetworkPolicy":
		m.policies = append(m.policies, strictly[networking.NetworkPolicy](t, file, doc))
	case "monitoring.coreos.com/v1 ServiceMonitor":
		m.monitors = append(m.monitors, strictly[monitoring.ServiceMonitor](t, file, doc))
	default:
		require.Fail(t, "a kind that no test decodes", "%s: %v", file, kind)
	}
}

func strictly[T any](t *testing.T, file string, doc []byte) (v T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict(doc, &v), file)
	return v
}

func TestManifestsAreWhatTheKubernetesAPIKnows(t *testing.T) {
	t.Parallel()
	all := read(t)
	require.Len(t, all.services, 5)
	require.Len(t, all.budgets, 4)
	require.Len(t, all.policies, 4)
	require.Len(t, all.monitors, 1)
	require.Error(t, yaml.UnmarshalStrict([]byte("spec: { replica: 3 }"), new(apps.Deployment)))
}

// settingsPages are made from the programs' settings; tests there compare them.
var settingsPages = map[string]string{
	"ingest": "reference/settings.md", "cleanup": "reference/settings.md",
	"availability": "reference/settings.md",
	"janitor":      "protocol.md",
}

func settingsTable(t *testing.T, page, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "<!-- begin "+name+" -->")
	require.True(t, ok)
	table, _, ok = strings.Cut(table, "<!-- end "+name+" -->")
	require.True(t, ok)
	return table
}

// settings are those of a program, and what each is if it is not set.
func settings(t *testing.T, program string) map[string]string {
	t.Helper()
	table := settingsTable(t, settingsPages["ingest"], "every program") + settingsTable(t, settingsPages[program], program)
	all := map[string]string{"GOMEMLIMIT": "empty"} // the runtime's
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z0-9_]+)`<br>`[^`]+` \\| ([^|]+) \\|").FindAllStringSubmatch(table, -1) {
		all[row[1]] = strings.Trim(row[2], "`")
	}
	require.Greater(t, len(all), 10)
	return all
}

func TestManifestsSetOnlySettingsThatThereAreAndAllThatAreRequired(t *testing.T) {
	t.Parallel()
	for _, w := range read(t).workloads {
		c := w.container()
		known := settings(t, c.Name)
		given := make(map[string]bool)
		for _, env := range c.Env {
			require.Contains(t, known, env.Name, "%s sets %s, which is no setting of %s", w.file, env.Name,
				c.Name)
			require.False(t, given[env.Name], "%s: %s stands twice", w.file, env.Name)
			given[env.Name] = true
			if strings.HasSuffix(env.Name, "_FILE") {
				require.Contains(t, w.secretFiles(t), env.Value, "%s: %s", w.file, env.Name)
				continue
			}
			require.Equal(t, env.Name == "REDIS_URL" || env.Name == "DATABASE_URL",
				env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil,
				"%s: %s: secrets are files; a URL holds a user and no password", w.file, env.Name)
		}
		for name, value := range known {
			require.True(t, value != "none, required" || given[name], "%s does not set %s", w.file, name)
		}
		require.Equal(t, w.stateful, given["INSTANCE_ID"],
			"%s: two pods of a Deployment have one INSTANCE_ID", w.file)
	}
}

func TestManifestsNamePortsAndPathsThatTheProgramServes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/http.md")
	require.NoError(t, err)
	all := read(t)
	for _, w := range all.workloads {
		c := w.container()
		require.Equal(t, []string{"/" + c.Name}, c.Command)
		require.DirExists(t, "../cmd/"+c.Name)
		require.Contains(t, c.Env, core.EnvVar{Name: "HTTP_ADDR", Value: ":8080"})
		require.Equal(t, int32(8080), port(c, "http"))
		if c.Name == "ingest" {
			require.Equal(t, settings(t, "ingest")["INGEST_ADDR"], ":5027")
			require.Equal(t, int32(5027), port(c, "devices"))
		}
		for path, probe := range map[string]*core.Probe{"/readyz": c.ReadinessProbe,
			"/healthz": c.LivenessProbe} {
			require.Equal(t, path, probe.HTTPGet.Path, w.file)
			require.Contains(t, string(page), "`GET "+path+"`")
			require.Equal(t, intstr.FromString("http"), probe.HTTPGet.Port, w.file)
		}
	}
	for _, s := range all.services {
		for _, w := range all.selected(t, meta.SetAsLabelSelector(s.Spec.Selector)) {
			for _, p := range s.Spec.Ports {
				require.Equal(t, p.Port, port(w.container(), p.TargetPort.StrVal), "%s of %s", p.Name, s.Name)
			}
		}
	}
	for _, p := range all.policies {
		for _, w := range all.selected(t, &p.Spec.PodSelector) {
			var open []string
			for _, rule := range p.Spec.Ingress {
				open = append(open, rule.Ports[0].Port.StrVal)
			}
			var served []string
			for _, at := range w.container().Ports {
				served = append(served, at.Name)
			}
			require.ElementsMatch(t, served, open, p.Name)
		}
	}
	for _, endpoint := range all.monitors[0].Spec.Endpoints {
		require.Contains(t, string(page), "`GET "+endpoint.Path+"`")
	}
}

// port is what a container calls by this name, or 0.
func port(c core.Container, name string) int32 {
	i := slices.IndexFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == name })
	if i < 0 {
		return 0
	}
	return c.Ports[i].ContainerPort
}

// selected are the workloads with pods of these labels; there has to be one.
func (m *manifests) selected(t *testing.T, selector *meta.LabelSelector) (found []workload) {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	for _, w := range m.workloads {
		if s.Matches(labels.Set(w.pod.Labels)) {
			found = append(found, w)
		}
	}
	require.NotEmpty(t, found, "nothing has the labels %v", selector)
	return found
}

func TestEachWorkloadIsFoundByAServiceABudgetAPolicyAndTheMonitor(t *testing.T) {
	t.Parallel()
	all := read(t)
	count := func(selectors ...*meta.LabelSelector) map[string]int {
		n := make(map[string]int)
		for _, selector := range selectors {
			for _, w := range all.selected(t, selector) {
				n[w.file]++
			}
		}
		return n
	}
	var budgets, policies, scraped []*meta.LabelSelector
	for i := range all.budgets {
		budgets = append(budgets, all.budgets[i].Spec.Selector)
	}
	for i := range all.policies {
		policies = append(policies, &all.policies[i].Spec.PodSelector)
	}
	monitor, err := meta.LabelSelectorAsSelector(&all.monitors[0].Spec.Selector)
	require.NoError(t, err)
	for _, s := range all.services {
		if monitor.Matches(labels.Set(s.Labels)) &&
			slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool {
				return p.Name == all.monitors[0].Spec.Endpoints[0].Port
			}) {
			scraped = append(scraped, meta.SetAsLabelSelector(s.Spec.Selector))
		}
	}
	for _, w := range all.workloads {
		own, err := meta.LabelSelectorAsSelector(w.selector)
		require.NoError(t, err)
		require.True(t, own.Matches(labels.Set(w.pod.Labels)), w.file)
		require.Greater(t, w.replicas, int32(1), w.file)
		require.Equal(t, 1, count(budgets...)[w.file], "budgets of %s", w.file)
		require.Equal(t, 1, count(policies...)[w.file], "policies of %s", w.file)
		require.Equal(t, 1, count(scraped...)[w.file], "scrapes of %s", w.file)
	}
}

func TestPodsHaveTheLeastRightsAndTimeToStop(t *testing.T) {
	t.Parallel()
	for _, w := range read(t).workloads {
		pod, c := w.pod.Spec, w.container()
		require.Len(t, pod.Containers, 1)
		require.True(t, *pod.SecurityContext.RunAsNonRoot, w.file)
		require.NotZero(t, *pod.SecurityContext.RunAsUser, w.file)
		require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type,
			w.file)
		require.False(t, *pod.AutomountServiceAccountToken, w.file)
		require.False(t, *pod.EnableServiceLinks, w.file)
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, w.file)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, w.file)
		require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, w.file)
		require.Empty(t, c.SecurityContext.Capabilities.Add, w.file)
		require.Zero(t, c.Resources.Limits.Cpu().Value(), "%s: a throttled process loses its lease", w.file)

		require.Equal(t, "10s", settings(t, c.Name)["SHUTDOWN_GRACE"])
		stop := int64(10)
		if c.Lifecycle != nil {
			stop += c.Lifecycle.PreStop.Sleep.Seconds
		}
		require.Greater(t, *pod.TerminationGracePeriodSeconds, stop, w.file)
	}
}

func TestARolloutStopsAtAReplicaThatFailsAndADrainDoesNotWaitForRedis(t *testing.T) {
	t.Parallel()
	all := read(t)
	for _, w := range all.workloads {
		require.GreaterOrEqual(t, w.settles, int32(10), w.file)
	}
	for _, b := range all.budgets {
		require.NotNil(t, b.Spec.UnhealthyPodEvictionPolicy, b.Name)
		require.Equal(t, policy.AlwaysAllow, *b.Spec.UnhealthyPodEvictionPolicy, b.Name)
	}
}

// docs/redis.md, memory, explains these. A replica without devices needs less than base; a
// connection needs 10 kB when it is silent, and its largest frame while Redis is away.
const base, connection = 100 << 20, 10_000 + 32<<10

func TestMemoryIsLimitedAndEnoughForEveryConnection(t *testing.T) {
	t.Parallel()
	for _, w := range read(t).workloads {
		limits := w.container().Resources.Limits
		limit := limits.Memory().Value()
		require.Positive(t, limit, w.file)
		env := make(map[string]string)
		for _, e := range w.container().Env {
			env[e.Name] = e.Value
		}
		if w.container().Name == "cleanup" { // it sets its own
			require.Empty(t, env["GOMEMLIMIT"])
			continue
		}
		mib, err := strconv.ParseInt(strings.TrimSuffix(env["GOMEMLIMIT"], "MiB"), 10, 64)
		require.NoError(t, err, w.file)
		require.InDelta(t, 0.9, float64(mib<<20)/float64(limit), 0.01, w.file)
		if w.container().Name != "ingest" {
			continue
		}
		conns, err := strconv.ParseInt(env["INGEST_MAX_CONNS"], 10, 64)
		require.NoError(t, err, w.file)
		require.GreaterOrEqual(t, mib<<20, base+conns*connection, w.file)
	}
}

func TestTheKustomizationNamesFilesThatThereAreAndTheImage(t *testing.T) {
	t.Parallel()
	var k struct {
		Resources []string
		Images    []struct{ Name, NewTag, Digest string }
	}
	decode(t, "kubernetes/kustomization.yaml", &k)
	require.NotEmpty(t, k.Resources)
	for _, file := range k.Resources {
		require.FileExists(t, "kubernetes/"+file)
	}
	for _, image := range k.Images {
		require.True(t, image.Digest != "" || image.NewTag != "" && image.NewTag != "latest", "%s: pinned", image.Name)
	}
	for _, w := range read(t).workloads {
		require.Equal(t, k.Images[0].Name, w.container().Image, w.file)
	}
}

func TestNoPodMayReachEveryAddress(t *testing.T) {
	t.Parallel()
	all := read(t)
	require.Len(t, all.policies, 4)
	for _, p := range all.policies {
		require.NotEmpty(t, p.Spec.Egress, p.Name)
		require.True(t, slices.ContainsFunc(p.Spec.Egress[0].Ports, func(at networking.NetworkPolicyPort) bool {
			return at.Port.IntValue() == 4318
		}), "%s: traces", p.Name)
		for _, rule := range p.Spec.Egress {
			require.NotEmpty(t, rule.To, "%s: a rule without to allows every address", p.Name)
			for _, to := range rule.To {
				require.NotNil(t, to.IPBlock, p.Name)
				require.GreaterOrEqual(t, netip.MustParsePrefix(to.IPBlock.CIDR).Bits(), 7, to.IPBlock.CIDR)
			}
		}
	}
}
