package registry

import "time"

// age returns the time from at to now by the monotonic or the wall clock, whichever gives more. The
// monotonic clock stops while a machine is suspended; the wall clock may be set back.
func age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}
