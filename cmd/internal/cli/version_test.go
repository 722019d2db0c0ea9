package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnArchiveHasItsVersionInIt(t *testing.T) {
	t.Parallel()
	const commit = "b8e77a28949ffd822f8764df56aa9bb607b81c66"
	for _, tt := range []struct{ name, built, archive, want string }{
		{"a module of the proxy", "v1.2.3", "$Format:...$", "v1.2.3"},
		{"a checkout with history", "v0.0.0-20261125223408-b8e77a28949f+dirty", "$Format:...$",
			"v0.0.0-20261125223408-b8e77a28949f+dirty"},
		{"a checkout whose history was not asked", "(devel)", "$Format:%(describe:tags)|%H|%ct$\n", "(devel)"},
		{"the archive of a release", "(devel)", "v1.2.3|" + commit + "|1795646048\n", "v1.2.3"},
		{"of a later commit", "(devel)", "v1.2.3-7-gb8e77a2|" + commit + "|1795646048\n", "v1.2.3-7-gb8e77a2"},
		{"of a commit before the first release", "", "|" + commit + "|1795646048\n",
			"v0.0.0-20261125223408-b8e77a28949f"},
		{"of a git that knows none of it", "(devel)", "%(describe:tags)|", "(devel)"},
		{"damaged", "(devel)", "|b8e7|soon", "(devel)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, versionOf(tt.built, tt.archive))
		})
	}
}

func TestGitWritesTheVersionIntoAnArchive(t *testing.T) {
	t.Parallel()
	said, err := exec.Command("git", "archive", "--format=tar", "HEAD", "archive.txt").Output()
	if err != nil { // the sources are not a clone: then the file was filled in, or copied
		return
	}
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(said), "|"+strings.TrimSpace(string(commit))+"|")
	require.True(t, ok, "archive.txt is not marked export-subst in .gitattributes")
	require.Regexp(t, `^\d+\n`, rest)
}
