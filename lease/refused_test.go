package lease

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// If a connection is refused during set-up, only the pipeline has the error; each command looks as
// if it had an empty answer.
func TestRefusedConnectionIsNotAnAbsentHolder(t *testing.T) {
	t.Parallel()
	o := Options(redistest.Shared(t).Options())
	o.DB = 1 << 20 // no such database: SELECT fails, as a wrong password would
	c := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	e, err := New(Config{Client: c, Key: redistest.Prefix(t) + "leader", Instance: "i"})
	require.NoError(t, err)
	_, err = e.Holder(t.Context())
	require.ErrorContains(t, err, "lease: read the holder")
}
