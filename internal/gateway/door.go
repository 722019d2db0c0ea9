package gateway

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// manyStrangers is how many sockets may be open that have not said who they are. A device says so at once; only
	// who floods a replica has more.
	manyStrangers = 4096
	// strangerTime is how long a socket may be silent once there are so many: a device behind a slow radio needs a
	// second or two.
	strangerTime = 3 * time.Second
	// manyRegistrations is how many devices are registered at once. With Redis away each takes a second, so that
	// 100,000 that come together all have their answer within 25 s, before the first gives up at 30.
	manyRegistrations = 4096
)

// door keeps those who want in from being in each other's way. Strangers, of whom no IMEI has come, cost little and are
// shown out, oldest first, when they are too many; so nobody gets a place in the queue of devices by saying nothing.
// Devices wait for one another, and none is refused.
type door struct {
	most  int           // strangers
	room  chan struct{} // holds a token when a stranger has become none
	desks chan struct{} // one taken for each registration under way

	mu        sync.Mutex
	strangers *list.List // of *stranger, in the order of arrival
}

// stranger is a socket of which no whole IMEI has come.
type stranger struct {
	*session
	came time.Time
}

func newDoor(strangers, registrations int) *door {
	return &door{
		most: strangers, room: make(chan struct{}, 1), desks: make(chan struct{}, registrations),
		strangers: list.New(),
	}
}

// count is the number of strangers.
func (d *door) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.strangers.Len()
}

// enter takes a new socket for a stranger.
func (d *door) enter(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.stranger = d.strangers.PushBack(&stranger{s, time.Now()})
}

// leave says that a socket has said who it is, or is gone. It may be called again.
func (d *door) leave(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.stranger == nil {
		return
	}
	d.strangers.Remove(s.stranger)
	s.stranger = nil
	select {
	case d.room <- struct{}{}:
	default:
	}
}

// wait returns when there is room for another stranger, if need be because the oldest was shown out, or when ctx ends.
func (d *door) wait(ctx context.Context) {
	for {
		oldest, patience := d.crowded()
		if oldest == nil {
			return
		}
		if patience <= 0 {
			d.leave(oldest)
			oldest.end(endCrowded)
			continue
		}
		timer := time.NewTimer(patience)
		select {
		case <-timer.C:
		case <-d.room:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// crowded returns the oldest stranger if there is no room for another, and how long it may stay.
func (d *door) crowded() (oldest *session, patience time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.strangers.Len() < d.most {
		return nil, 0
	}
	s := d.strangers.Front().Value.(*stranger)
	return s.session, time.Until(s.came.Add(strangerTime))
}
