package janitor

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// If a connection is refused during set-up, only the pipeline has the error; each command looks as
// if the answer were 0.
func TestARefusedConnectionIsNobodysDeath(t *testing.T) {
	t.Parallel()
	o := lease.Options(redistest.Shared(t).Options())
	o.DB = 1 << 20 // no such database: SELECT fails, as a wrong password would
	c := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	j := &Janitor{cfg: Config{Client: c, ExistsConcurrency: 1}}
	found := make([]heartbeat, 2)
	err := j.exists(t.Context(), []string{"a", "b"}, found)
	require.Error(t, err)
	require.Equal(t, make([]heartbeat, 2), found, "unreadable, both")
	_, _, err = j.heartbeats(t.Context(), []string{"a", "b"}, nil)
	require.ErrorContains(t, err, "judge owners")
}
