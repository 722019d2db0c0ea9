package redistest

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// World is a server for a suite.
type World struct {
	Client  *redis.Client  // from Options; closed with the subtest
	Options *redis.Options // fresh, for further clients
	Prefix  string         // the subtest's own, ends in ':'
	Real    bool           // not miniredis
}

// Worlds runs the subtests "real", on the shared redis-server, and "miniredis", on a server of its
// own whose keys expire in real time. The function may call t.Parallel.
func Worlds(t *testing.T, cases func(t *testing.T, w World)) {
	t.Helper()
	t.Run("real", func(t *testing.T) {
		cases(t, newWorld(t, Shared(t).Options(), true))
	})
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		require.NoError(t, m.Start())
		t.Cleanup(m.Close)
		cases(t, newWorld(t, options(m.Addr()), false))
	})
}

// OnReal runs in parallel on the shared redis-server. On miniredis the time at which a key expires
// (PEXPIRETIME) changes by a millisecond now and then.
func OnReal(t *testing.T, cases func(t *testing.T, w World)) {
	t.Helper()
	t.Parallel()
	cases(t, newWorld(t, Shared(t).Options(), true))
}

func newWorld(t *testing.T, o *redis.Options, isReal bool) World {
	own := *o
	own.ReadTimeout = time.Minute // miniredis looks at every expiry at each command
	return World{Client: newClient(t, &own), Options: o, Prefix: Prefix(t), Real: isReal}
}

// Prefix returns a unique one with the test's name, without characters that patterns or hash tags
// know, and with ':' at its end.
func Prefix(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, t.Name())
	return name[max(0, len(name)-60):] + "-" + rand.Text()[:10] + ":"
}
