package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const refuses = "Redis refuses this replica"

var unanswered = regexp.MustCompile(`deadline exceeded|i/o timeout`)

// admin returns a connection to the server that survives changes of passwords.
func admin(t *testing.T, server *redistest.Server) func(args ...any) {
	t.Helper()
	conn := server.Client().Conn()
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.Ping(t.Context()).Err())
	return func(args ...any) {
		t.Helper()
		require.NoError(t, conn.Do(t.Context(), args...).Err())
	}
}

func TestAReplicaThatRedisRefusesIsNotReadyAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setup, mend []any
		login, db   string
		says        string
	}{
		"a wrong password": {
			[]any{"CONFIG", "SET", "requirepass", "right"}, []any{"CONFIG", "SET", "requirepass", "wrong"}, ":wrong@", "", "WRONGPASS",
		},
		"a user whose scripts may not write": {
			[]any{"ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-set"}, []any{"ACL", "SETUSER", "ann", "+set"}, "ann:pw@", "", "script",
		},
		"a database that there is not": {[]any{"PING"}, nil, "", "/77", "DB index is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			do := admin(t, server)
			do(c.setup...)
			// The deadline is about a second: a call without an answer in time is not a refusal.
			p := serving(t, append(quick, "--heartbeat-interval=3s", "--heartbeat-ttl=9s", "--janitor-lease-ttl=9s",
				"--redis-url=redis://"+c.login+server.Addr()+c.db)...)
			p.Await(func() bool { return p.state().Time.Sub(p.state().Started) > 2*ttlOfQuick }) // some tries
			code, reason := p.Get("/readyz")
			require.Equal(t, 503, code)
			require.Contains(t, reason, "refused: Redis does not accept this replica")
			require.Contains(t, reason, c.says)
			require.Contains(t, p.state().Registry.Refused, c.says)
			var told []string
			for line := range strings.Lines(p.Log.String()) {
				if strings.Contains(line, `"error"`) && !strings.Contains(line, "user lacks rights") {
					told = append(told, line)
				}
			}
			// On a slow machine a call may have ended without an answer: then the parts start, and each
			// reports its own errors.
			if slices.ContainsFunc(told, unanswered.MatchString) {
				told = slices.DeleteFunc(told, func(line string) bool { return !strings.Contains(line, refuses) })
			}
			require.Len(t, told, 1)
			require.Contains(t, told[0], refuses+": fix its user, password or rights")
			require.Contains(t, told[0], c.says)
			if c.mend == nil {
				return
			}
			do(c.mend...)
			p.Await(func() bool { code, _ := p.Get("/readyz"); return code == 200 })
			p.Await(func() bool { return p.state().Janitor.Leading })
			require.Empty(t, p.state().Registry.Refused)
		})
	}
}

// As in a rolling change of the password, before the replicas' own turn.
func TestAReplicaThatRedisAcceptedStaysReadyWhenItIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	do := admin(t, server)
	p := serving(t, on(server, quick...)...)
	p.Await(func() bool { return !p.state().Registry.LastBeat.IsZero() }) // accepted, not only waited for
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == 200 })
	do("CONFIG", "SET", "requirepass", "another")
	do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	p.Await(func() bool { return p.state().Registry.Refused != "" })
	code, _ := p.Get("/readyz")
	require.Equal(t, 200, code)
	require.False(t, p.state().Redis.Reachable)
	do("CONFIG", "SET", "requirepass", "")
	p.Await(func() bool { return p.state().Redis.Reachable && p.state().Registry.Refused == "" })
}
