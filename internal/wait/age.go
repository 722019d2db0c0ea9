package wait

import "time"

// Age returns the time from at to now by the monotonic or the wall clock, whichever gives more. The
// monotonic clock stops while a machine is suspended; the wall clock may be set back.
func Age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}
