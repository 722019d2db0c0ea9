package gateway

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// manyUnidentified is how many sockets may be open that have not said who they are. A device says
	// so at once; only who floods a replica has more.
	manyUnidentified = 4096
	// unidentifiedTime is how long a socket may be silent once there are so many: a device behind a
	// slow radio needs a second or two.
	unidentifiedTime = 3 * time.Second
	// manyRegistrations is how many devices are registered at once. With Redis away each takes a
	// second, so that 100,000 that come together all have their answer within 25 s, before the first
	// gives up at 30.
	manyRegistrations = 4096
)

// admission keeps new sockets from being in the way of each other. Unidentified sockets, of which
// no IMEI has come, cost little and are shown out, oldest first, when they are too many; so nobody
// gets a place in the queue of devices by saying nothing. Devices wait for one another, and none is
// refused.
type admission struct {
	most  int           // unidentified sockets
	room  chan struct{} // holds a token when one was identified
	slots chan struct{} // one taken for each registration under way

	mu           sync.Mutex
	unidentified *list.List // of *unidentifiedSocket, in the order of arrival
}

// unidentifiedSocket is a socket of which no whole IMEI has come.
type unidentifiedSocket struct {
	*session
	came time.Time
}

func newAdmission(unidentified, registrations int) *admission {
	return &admission{
		most: unidentified, room: make(chan struct{}, 1), slots: make(chan struct{}, registrations),
		unidentified: list.New(),
	}
}

// count is the number of unidentified sockets.
func (a *admission) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unidentified.Len()
}

// enter takes a new socket as unidentified.
func (a *admission) enter(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.unidentified = a.unidentified.PushBack(&unidentifiedSocket{s, time.Now()})
}

// leave says that a socket has said who it is, or is gone. It may be called again.
func (a *admission) leave(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.unidentified == nil {
		return
	}
	a.unidentified.Remove(s.unidentified)
	s.unidentified = nil
	select {
	case a.room <- struct{}{}:
	default:
	}
}

// wait returns when there is room for another one, if need be because the oldest was shown out, or
// when ctx ends.
func (a *admission) wait(ctx context.Context) {
	for {
		oldest, patience := a.crowded()
		if oldest == nil {
			return
		}
		if patience <= 0 {
			a.leave(oldest)
			oldest.end(endCrowded)
			continue
		}
		timer := time.NewTimer(patience)
		select {
		case <-timer.C:
		case <-a.room:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// crowded returns the oldest unidentified socket if there is no room for another, and how long it
// may stay.
func (a *admission) crowded() (oldest *session, patience time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unidentified.Len() < a.most {
		return nil, 0
	}
	s := a.unidentified.Front().Value.(*unidentifiedSocket)
	return s.session, time.Until(s.came.Add(unidentifiedTime))
}
