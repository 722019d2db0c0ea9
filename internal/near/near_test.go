package near

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNearestNameIsFound(t *testing.T) {
	t.Parallel()
	names := []string{"status", "start", "top", "of"}
	for word, want := range map[string]string{
		"status": "status", "statsu": "status", "stat": "start", "tpo": "top", "xx": "", "nothing": "", "": "",
	} {
		require.Equal(t, want, Name(word, names, 2), word)
	}
	require.Empty(t, Name("statsu", names, 1))
}
