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
	w.holds(r, imei)
	ctx := t.Context()
	rules := redistest.User(t, "../../docs/redis.md", "reader")
	require.NoError(t, w.client.Do(ctx, append([]any{"ACL", "SETUSER", "reader"}, rules...)...).Err())
	w.environ = []string{"REDIS_URL=redis://reader:PASSWORD@" + w.options.Addr}
	until(t, "it leads", func() bool { return w.client.Exists(ctx, w.keys.Lease()).Val() == 1 })
	w.tells(`
		0 status
		0 find $IMEI
		0 why $IMEI
		3 why mitra:capacity:1
		0 log
		0 verify`)
	refused, err := w.client.ACLLog(ctx, 100).Result()
	require.NoError(t, err)
	for _, r := range refused {
		t.Errorf("refused: %s %s, from %s", r.Reason, r.Object, r.Context)
	}
	w.tells(`1 pause why ~ NOPERM`)
	require.Zero(t, w.client.Exists(ctx, w.keys.Paused()).Val())
}
