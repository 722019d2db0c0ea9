package janitor

import "time"

// secondSlot is how exactly a second remembers.
const secondSlot = 50 * time.Millisecond

// second sums up what was done within the last second, and up to a slot longer: no second has more. It is pure.
type second struct {
	slots [time.Second/secondSlot + 1]time.Duration
	last  int64 // number of the latest slot, counted from begun
	begun time.Time
}

// turn makes now's slot the latest one.
func (s *second) turn(now time.Time) {
	if s.begun.IsZero() {
		s.begun = now
	}
	at, n := int64(now.Sub(s.begun)/secondSlot), int64(len(s.slots))
	for ; s.last < at && at-s.last <= n; s.last++ {
		s.slots[(s.last+1)%n] = 0
	}
	if at > s.last {
		clear(s.slots[:])
		s.last = at
	}
}

// add notes that d was done, up to now.
func (s *second) add(now time.Time, d time.Duration) {
	s.turn(now)
	s.slots[s.last%int64(len(s.slots))] += d
}

// sum is what was done within the last second.
func (s *second) sum(now time.Time) (sum time.Duration) {
	s.turn(now)
	for _, d := range s.slots {
		sum += d
	}
	return sum
}

// wait is how long it takes until less than most was done within the last second.
func (s *second) wait(now time.Time, most time.Duration) time.Duration {
	sum, n := s.sum(now), int64(len(s.slots))
	k := int64(0) // how many of the oldest slots have to go
	for ; k < n && sum >= most; k++ {
		sum -= s.slots[(s.last+1+k)%n]
	}
	if k == 0 {
		return 0
	}
	return s.begun.Add(time.Duration(s.last+k) * secondSlot).Sub(now)
}
