// Package waittest waits for other goroutines or processes in tests.
package waittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience bounds waits; nothing ever takes that long.
const Patience = 2 * time.Minute

// Becomes returns false after Patience.
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

// Until fails the test with what. cond runs on the test's own goroutine and may require: with
// testify's Eventually a failed requirement ends another goroutine, and the test waits in vain.
func Until(t testing.TB, every time.Duration, cond func() bool, what ...any) {
	t.Helper()
	if !Becomes(every, cond) {
		require.FailNow(t, "waited in vain", what...)
	}
}
