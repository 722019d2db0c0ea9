package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// With the read-only user of docs/redis.md each verb that reads answers, and Redis refuses nothing.
func TestTheDocumentedReaderReadsAndWritesNothing(t *testing.T) {
	t.Parallel()
	w := serverOf(t, redistest.Start(t).Options())
	w.listened()
	r := w.replica("one")
	w.holds(r, "356307042441013")
	ctx := t.Context()
	rules := redistest.User(t, "../../docs/redis.md", "reader")
	require.NoError(t, w.client.Do(ctx, append([]any{"ACL", "SETUSER", "reader"}, rules...)...).Err())
	w.environ = []string{"REDIS_URL=redis://reader:PASSWORD@" + w.options.Addr}
	until(t, "it leads", func() bool { return w.client.Exists(ctx, w.keys.Lease()).Val() == 1 })
	for _, verb := range [][]string{
		{"status"}, {"find", "356307042441013"}, {"why", "356307042441013"}, {"why", "mitra:capacity:1"}, {"log"}, {"verify"},
	} {
		code, _, stderr := w.run(verb...)
		require.Contains(t, []int{0, 3}, code, "%v: %s", verb, stderr)
		require.Empty(t, stderr, verb)
	}
	refused, err := w.client.ACLLog(ctx, 100).Result()
	require.NoError(t, err)
	for _, r := range refused {
		t.Errorf("refused: %s %s, from %s", r.Reason, r.Object, r.Context)
	}
	code, _, stderr := w.run("pause", "why")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "NOPERM")
	require.Zero(t, w.client.Exists(ctx, w.keys.Paused()).Val())
}
