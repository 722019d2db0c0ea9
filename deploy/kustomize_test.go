package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// What kubectl apply -k sends is what kustomize makes of the folder.
func TestKustomizeBuildsTheFolder(t *testing.T) {
	t.Parallel()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "kubernetes")
	require.NoError(t, err)
	text, err := built.AsYaml()
	require.NoError(t, err)
	var all manifests
	for _, doc := range split(t, text) {
		all.add(t, "kustomize", doc)
	}
	require.Len(t, all.workloads, 3, "a Deployment of each program")
	require.Len(t, all.budgets, 3)
	require.Len(t, all.policies, 3)
	for _, w := range all.workloads {
		require.True(t, strings.HasPrefix(w.container().Image, "registry.example.org/rollcall:"),
			w.container().Image)
	}
}
