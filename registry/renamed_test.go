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
			left, err := o.message(t.Context(), "o", "1 1 imei")
			require.Positive(t, left)
			require.Equal(t, command == "PUBLISH", err != nil, "what was not asked must not count as unanswered")
		})
	}
}
