package janitor

import (
	"slices"
	"sync"
	"time"
)

const (
	// sizeTarget is for how long one call may hold the server; twice that is too long.
	sizeTarget = time.Millisecond
	// sizeLeast: below this a call costs more than what it does.
	sizeLeast = 50
	// sizeCalls are looked at together. The quickest of them says how long a call holds the server: the network and a busy
	// machine only add to that.
	sizeCalls = 4
)

// size is how many elements a page or batch has: halved when calls take too long, growing again
// by a tenth of the most with each while they do not. It is pure, and safe for concurrent use.
type size struct {
	most int

	mu    sync.Mutex
	now   int
	calls []time.Duration // what the last ones of this size, or a smaller one, took
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
	s.calls = append(s.calls, d)
	s.calls = s.calls[max(0, len(s.calls)-sizeCalls):]
	switch quickest := slices.Min(s.calls); {
	case quickest > 2*sizeTarget && len(s.calls) == sizeCalls:
		s.now, s.calls = max(s.now/2, min(sizeLeast, s.most)), nil
	case quickest <= sizeTarget:
		s.now = min(s.now+max(1, s.most/10), s.most)
	}
}
