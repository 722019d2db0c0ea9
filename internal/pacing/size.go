package pacing

import (
	"sync"
	"time"
)

const (
	sizeTarget = time.Millisecond // one call may hold the server for so long; twice is too long
	sizeLeast  = 50               // below this a call costs more than what it does
	sizeCalls  = 4                // in a row: the network and a busy machine make single ones long
)

// Size is how many elements a page or a batch has. It is halved when calls hold the server for too
// long, and grows by a tenth of the most with each that does not. It is safe for concurrent use.
type Size struct {
	most int

	mu   sync.Mutex
	now  int
	slow int // calls in a row
}

// NewSize returns a Size that begins with the most.
func NewSize(most int) *Size { return &Size{most: most, now: most} }

// Get is the size to use now.
func (s *Size) Get() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Took takes for how long a call of this size held the server.
func (s *Size) Took(held time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held <= 2*sizeTarget {
		s.slow = 0
	} else if s.slow++; s.slow == sizeCalls {
		s.now, s.slow = max(s.now/2, min(sizeLeast, s.most)), 0
	}
	if held <= sizeTarget {
		s.now = min(s.now+max(1, s.most/10), s.most)
	}
}
