package gateway

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// manyUnidentified is how many sockets without an IMEI may be open. A device sends its IMEI at
	// once. Only an attack has more of them.
	manyUnidentified = 4096
	// unidentifiedTime is how long a socket may be silent when there are so many: a device on a slow
	// radio needs a second or two.
	unidentifiedTime = 3 * time.Second
	// manyRegistrations is how many devices are registered at once. Without Redis each takes a second.
	// Then 100,000 devices that come together all have their answer within 25 s. They give up at 30.
	manyRegistrations = 4096
)

// admission keeps new sockets from being in each other's way. Sockets without an IMEI cost little.
// When they are too many, the oldest are closed, so that silent sockets do not keep devices out.
// Devices wait for one another's registration, and none is refused.
type admission struct {
	most  int           // sockets without an IMEI
	room  chan struct{} // holds a token when one of them has left
	slots chan struct{} // one taken for each registration under way

	mu           sync.Mutex
	unidentified *list.List // of *session, in the order of arrival
}

func newAdmission(unidentified, registrations int) *admission {
	return &admission{
		most: unidentified, room: make(chan struct{}, 1), slots: make(chan struct{}, registrations),
		unidentified: list.New(),
	}
}

// count is the number of sockets without an IMEI.
func (a *admission) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unidentified.Len()
}

// enter adds a new socket.
func (a *admission) enter(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.unidentified = a.unidentified.PushBack(s)
}

// leave says that the IMEI of a socket has come, or that it has ended. It may be called again.
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

// wait returns when there is room for another socket, or when ctx ends. It closes the oldest one if
// that was silent for too long.
func (a *admission) wait(ctx context.Context) {
	for {
		oldest := a.crowding()
		if oldest == nil {
			return
		}
		left := time.Until(oldest.came.Add(unidentifiedTime))
		if left <= 0 {
			a.leave(oldest)
			oldest.end(endCrowded)
			continue
		}
		select {
		case <-time.After(left):
		case <-a.room:
		case <-ctx.Done():
			return
		}
	}
}

// crowding returns the oldest socket if there is no room for another.
func (a *admission) crowding() *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unidentified.Len() < a.most {
		return nil
	}
	return a.unidentified.Front().Value.(*session)
}
