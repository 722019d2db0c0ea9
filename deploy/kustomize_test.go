package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomize returns what kubectl apply -k sends of a folder.
func kustomize(t *testing.T, folder string) (all manifests) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	require.NoError(t, err)
	text, err := built.AsYaml()
	require.NoError(t, err)
	for _, doc := range split(t, text) {
		all.add(t, "kustomize", doc)
	}
	return all
}

func TestKustomizeBuildsTheFolder(t *testing.T) {
	t.Parallel()
	all := kustomize(t, "kubernetes")
	require.Len(t, all.workloads, 3, "ingest, cleanup and availability")
	require.Len(t, all.budgets, 3)
	require.Len(t, all.policies, 3)
	for _, w := range all.workloads {
		require.True(t, strings.HasPrefix(w.container().Image, "registry.example.org/rollcall:"),
			w.container().Image)
	}
}

func TestDeviceCertificatesAreAskedForByAPatchOfTheManifests(t *testing.T) {
	t.Parallel()
	plain, all := kustomize(t, "kubernetes"), kustomize(t, "device-certificates")
	require.Len(t, all.workloads, len(plain.workloads))
	known := settings(t, "ingest")
	for i, w := range all.workloads {
		c := w.container()
		if c.Name != "ingest" {
			require.Equal(t, plain.workloads[i].pod, w.pod)
			continue
		}
		env := make(map[string]string)
		for _, e := range c.Env {
			require.Contains(t, known, e.Name)
			env[e.Name] = e.Value
		}
		require.Len(t, c.Env, len(plain.workloads[i].container().Env)+5, "nothing of before is lost")
		require.Equal(t, "off", env["INGEST_ADDR"], "nobody may connect without a certificate")
		require.Equal(t, int32(5027), port(c, "devices"))
		require.Equal(t, ":5027", env["INGEST_TLS_ADDR"])
		var files []string
		for _, v := range w.pod.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					files = append(files, paths(source.Secret.Items)...)
				} else {
					files = append(files, paths(source.ConfigMap.Items)...)
				}
			}
		}
		for _, name := range []string{"INGEST_TLS_CERT", "INGEST_TLS_KEY", "INGEST_TLS_CLIENT_CA"} {
			require.Contains(t, files, env[name], name)
		}
	}
}

// paths are where these items are mounted.
func paths(items []core.KeyToPath) (all []string) {
	for _, item := range items {
		all = append(all, "/run/secrets/devices/"+item.Path)
	}
	return all
}
