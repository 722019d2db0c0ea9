package pacing

import (
	"sync"
	"time"
)

const (
	sizeTarget = time.Millisecond / 2 // that a call may occupy the server; twice is too long
	sizeLeast  = 50                   // below this a call costs more than its work
	sizeCalls  = 4                    // in a row: the network and a busy machine prolong single calls
)

// Size is the number of elements of a page or batch. It grows by a tenth of the maximum while a
// call of the next size would occupy the server for at most half a millisecond, and is halved when
// calls take twice as long. It is safe for concurrent use.
type Size struct {
	most int

	mu   sync.Mutex
	now  int
	slow int // consecutive slow calls
}

// NewSize returns a Size of half of most, from which one can see whether most is too much.
func NewSize(most int) *Size {
	s := &Size{most: most, now: most}
	s.halve()
	return s
}

func (s *Size) halve() { s.now = max(s.now/2, min(sizeLeast, s.most)) }

// Get returns the current size.
func (s *Size) Get() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Took takes how long a call with n elements occupied the server.
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
