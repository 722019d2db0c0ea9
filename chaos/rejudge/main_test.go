package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	t.Parallel()
	good, bad := filepath.Join("..", "judge", "testdata", "good"), filepath.Join("..", "judge", "testdata", "bad")
	for name, row := range map[string]struct {
		args   []string
		status int
		says   []string
	}{
		"nothing to find":    {[]string{good}, 0, []string{"0 violations", "3 evictions", "new leader: 1 times, median 3s", "dead owner clean: 1 times"}},
		"something to find":  {[]string{good, bad}, 1, []string{"C3 at", "byte ", "C7 at", "3 violations"}},
		"no run at all":      {[]string{t.TempDir(), good}, 1, []string{"facts.json", "0 violations"}},
		"without a folder":   {nil, 2, []string{"usage"}},
		"with a flag":        {[]string{"-x"}, 2, []string{"usage"}},
		"bad first and last": {[]string{bad, good}, 1, []string{"C3 at"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			require.Equal(t, row.status, run(row.args, &out, &out), out.String())
			for _, text := range row.says {
				require.Contains(t, out.String(), text)
			}
		})
	}
}
