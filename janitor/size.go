package janitor

import (
	"sync"
	"time"
)

const (
	// sizeTarget is for how long one call may hold the server; twice that is too long.
	sizeTarget = time.Millisecond
	// sizeLeast: below this a call costs more than what it does.
	sizeLeast = 50
)

// size is how many elements a page or batch has: halved when two in a row took too long, growing again
// by a tenth of the most with each that did not. It is pure, and safe for concurrent use.
type size struct {
	most int

	mu   sync.Mutex
	now  int
	slow bool // the last one took too long
}

func newSize(most int) *size { return &size{most: most, now: most} }

// get is the size to use now.
func (s *size) get() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// took takes how long a call of this size held the server.
func (s *size) took(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case d > 2*sizeTarget && s.slow:
		s.now, s.slow = max(s.now/2, min(sizeLeast, s.most)), false
	case d > 2*sizeTarget:
		s.slow = true
	default:
		s.slow = false
		if d <= sizeTarget {
			s.now = min(s.now+max(1, s.most/10), s.most)
		}
	}
}
