package registry

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// suspended returns the time after a machine was suspended at now for d: only the wall clock moves.
// In a time with a monotonic reading, the wall clock's seconds start at bit 30 of the first word.
func suspended(t *testing.T, now time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&now)) += uint64(d/time.Second) << 30
	return now
}

func TestEvidenceAgesWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	woken := suspended(t, begun, time.Minute)
	require.Zero(t, woken.Sub(begun), "the monotonic clock stands still")
	require.Equal(t, time.Minute, wait.Age(begun, woken))
	require.Equal(t, time.Second, wait.Age(begun, suspended(t, begun.Add(time.Second), -time.Minute)), "a clock that is set back")

	t.Run("a handshake", func(t *testing.T) {
		d := newTimed()
		d.now = begun
		d.claim("imei")
		d.now = woken
		what, _ := d.batch(t)
		require.Equal(t, "heal", what, "it does not overwrite what has moved meanwhile")
	})
	t.Run("a frame that proves", func(t *testing.T) {
		d := newTimed()
		d.now = begun
		c := d.claim("imei")
		_, ops := d.batch(t)
		d.answer(ops, reply{foreign: map[string]string{"imei": "other"}}, nil)
		d.frameAcked(c)
		d.frameReceived(c, d.now)
		require.True(t, d.proof(c.h, d.now))
		require.False(t, d.proof(c.h, woken))
	})
	t.Run("what another owner is told", func(t *testing.T) {
		d := newTimed()
		d.now = begun
		c := d.claim("imei")
		later, _ := d.compare("other", []string{"30000", "imei"}, woken)
		require.Empty(t, later, "the other heard it later")
		require.Equal(t, []displacement{{"imei", "other"}}, d.displaced)
		require.Equal(t, woken, c.told)
	})
}
