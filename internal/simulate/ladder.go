package simulate

import "time"

// rungs are the documented waits before each attempt to connect, in minutes; the last repeats.
var rungs = [...]int{0, 1, 1, 2, 2, 4, 6, 8, 10}

// ladder is how many attempts a device has made since the last that led to an acknowledgement.
type ladder int

// climb returns how long to wait before the next attempt.
func (l *ladder) climb(minute time.Duration) time.Duration {
	wait := time.Duration(rungs[*l]) * minute
	if int(*l) < len(rungs)-1 {
		*l++
	}
	return wait
}

// reset makes the next attempt one that is made at once.
func (l *ladder) reset() { *l = 0 }
