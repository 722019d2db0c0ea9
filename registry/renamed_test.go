package registry

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A command that the server's configuration renames counts as not allowed.
func TestACommandThatTheServerRenamesIsOneThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	for command, count := range map[string]int{"PUBLISH": noTelling, "SADD": noKeeping, "SREM": noKeeping} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, "--rename-command", command, "renamed-"+command)
			o := newOwner(t, redistest.World{Options: srv.Options(), Client: srv.Client(), Real: true}, "o")
			got := o.run(beatScript, o.Timing().Grace().Milliseconds())
			require.Equal(t, count, got.count)
			o.run(registerScript, "imei")
			require.Equal(t, map[string]string{"imei": "o"}, o.entries())
			_, lives, err := o.message(t.Context(), "dead", []byte("/o 1 imei"))
			require.NoError(t, err, "whether it lives is known all the same")
			require.False(t, lives)
			_, lives, err = o.message(t.Context(), "o", []byte("/o 1 imei"))
			require.NoError(t, err)
			require.True(t, lives)
		})
	}
}
