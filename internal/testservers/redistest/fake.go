package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/testservers/fakeredis"
)

// Fake starts a server in this process, for testing/synctest, and returns its options.
func Fake(t testing.TB) *redis.Options {
	_, o := fakeredis.Start(t)
	return o
}
