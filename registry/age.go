package registry

import "time"

// age returns how long ago at was. While a machine is suspended its monotonic clock stands still
// and the wall clock does not; a wall clock that is set back shows too little. Evidence is as old as
// the larger of the two says.
func age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}
