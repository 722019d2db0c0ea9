// Package waittest is how tests wait for what another goroutine or process does.
package waittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience bounds what a test waits for; nothing ever takes so long.
const Patience = 2 * time.Minute

// Becomes asks again and again, with a pause of every, until cond is true; false if it is too late.
func Becomes(every time.Duration, cond func() bool) bool {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for late := time.Now().Add(Patience); !cond(); <-tick.C {
		if time.Now().After(late) {
			return false
		}
	}
	return true
}

// Until is Becomes; too late fails the test, with what. cond runs in the test's own goroutine, and
// may require: where testify's Eventually asks, a failed requirement ends another goroutine, and
// the test waits in vain.
func Until(t testing.TB, every time.Duration, cond func() bool, what ...any) {
	t.Helper()
	if !Becomes(every, cond) {
		require.FailNow(t, "waited in vain", what...)
	}
}
