package pacing

import (
	"sync"
	"time"
)

const (
	sizeTarget = time.Millisecond / 2 // that a call may hold the server; twice is too long
	sizeLeast  = 50                   // below this a call costs more than what it does
	sizeCalls  = 4                    // in a row: the network and a busy machine make single ones long
)

// Size is how many elements a page or a batch has. It grows by a tenth of the most while a call of
// the next size would hold the server for half a millisecond at most, and is halved when calls hold
// it for twice as long. It is safe for concurrent use.
type Size struct {
	most int

	mu   sync.Mutex
	now  int
	slow int // calls in a row
}

// NewSize returns a Size of at most so many. It begins with half of them: whether the most is too
// much is seen from less.
func NewSize(most int) *Size {
	s := &Size{most: most, now: most}
	s.halve()
	return s
}

func (s *Size) halve() { s.now = max(s.now/2, min(sizeLeast, s.most)) }

// Get is the size to use now.
func (s *Size) Get() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Took takes for how long a call with n elements held the server.
func (s *Size) Took(n int, held time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held > 2*sizeTarget {
		if s.slow++; s.slow == sizeCalls {
			s.halve()
			s.slow = 0
		}
		return
	}
	s.slow = 0
	next := min(s.now+max(1, s.most/10), s.most)
	if held*time.Duration(next) <= sizeTarget*time.Duration(n) {
		s.now = next
	}
}
