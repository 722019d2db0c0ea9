package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/peer"
)

const (
	// manyUnidentified is for attacks: a device sends its IMEI at once.
	manyUnidentified = 4096
	// spared is how long an address' only such socket is safe: a slow radio needs a second or two.
	spared = 3 * time.Second
	// manyRegistrations take a second without Redis, so 100,000 devices get their answer within 25
	// s. They give up at 30.
	manyRegistrations = 4096
	// reports is how many frames make a socket safe from being closed to make room.
	reports = 3
	// newcomers is a divisor: in a full replica one address may hold 1/32 of the sockets with
	// newcomers.
	newcomers     = 32
	quietNewcomer = 10 * time.Minute
	// lookAgain bounds the pause of a full replica: a closed socket may be in the middle of its
	// registration.
	lookAgain = 100 * time.Millisecond
	// manyEnding bounds the closed sockets that are still ending: one that is registering takes up
	// to a second, and a flood brings thousands in that time. Their descriptors are free at once.
	manyEnding = 1024
)

type standing int

const (
	unidentified standing = iota // no IMEI
	unproven                     // an IMEI, which anybody can invent
	newcomer                     // frames with a right checksum, but fewer than reports
	proven                       // a device that reports
)

// admission makes room as Config.MaxConns describes: a flood from few addresses displaces itself,
// and never a device that reports. Registrations are queued, none is refused.
type admission struct {
	most  int           // bound of sockets without an IMEI
	share int           // bound of newcomers per address
	room  chan struct{} // holds a token once a socket has left or risen
	slots chan struct{} // one taken per running registration

	mu     sync.Mutex
	crowds [proven]*crowd
	ending int // not ended, though others have their places
}

func newAdmission(conns, unidentified, registrations int) *admission {
	a := &admission{
		most: unidentified, share: max(1, conns/newcomers),
		room: make(chan struct{}, 1), slots: make(chan struct{}, registrations),
	}
	for s := range a.crowds {
		a.crowds[s] = newCrowd()
	}
	return a
}

func (a *admission) count(s standing) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.crowds[s].size
}

func (a *admission) enter(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.standing = unidentified
	a.crowds[unidentified].add(s, networkOf(s.under.RemoteAddr()), s.came)
}

// identified reads the address again: a proxy's header may have named another.
func (a *admission) identified(s *session) { a.rise(s, unproven, networkOf(s.conn.RemoteAddr())) }

func (a *admission) reported(s *session, n int) {
	if n >= reports {
		a.rise(s, proven, netip.Prefix{})
	} else {
		a.rise(s, newcomer, s.address)
	}
}

// leave may be called again.
func (a *admission) leave(s *session) { a.rise(s, proven, netip.Prefix{}) }

func (a *admission) rise(s *session, to standing, from netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.place != nil {
		a.crowds[s.standing].remove(s)
	}
	if s.left = s.left || to == proven; !s.left {
		a.crowds[to].add(s, from, time.Now())
	}
	s.standing = to
	select {
	case a.room <- struct{}{}:
	default:
	}
}

// wait returns once there is room for another socket without an IMEI, or when ctx ends.
func (a *admission) wait(ctx context.Context) {
	for a.count(unidentified) >= a.most {
		s, left := a.least(unidentified, unidentified)
		if s != nil {
			a.leave(s)
			s.end(endCrowded)
			continue
		}
		a.pause(ctx, left, nil)
		if ctx.Err() != nil {
			return
		}
	}
}

// take takes a slot, if need be the least deserving socket's. It returns false when ctx has ended.
func (a *admission) take(ctx context.Context, slots chan struct{}) bool {
	for {
		select {
		case slots <- struct{}{}:
			return true
		default:
		}
		s, left := a.least(unidentified, newcomer)
		if s != nil {
			a.leave(s)
			s.end(endCrowded)
			if a.vacate(s) {
				return true
			}
			left = lookAgain
		}
		if a.pause(ctx, left, slots) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// vacate passes a closed socket's slot on, unless it has ended or too many others are ending.
func (a *admission) vacate(s *session) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.over || a.ending == manyEnding {
		return false
	}
	s.vacated = true
	a.ending++
	return true
}

func (a *admission) ended(s *session, slots chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.over = true; s.vacated {
		a.ending--
		return
	}
	<-slots
}

// least returns the least deserving socket, or how long to wait for one.
func (a *admission) least(from, to standing) (_ *session, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	left = time.Minute
	for s := from; s <= to; s++ {
		g := a.crowds[s].largest()
		if g == nil {
			continue
		}
		oldest := g.oldest()
		most, quiet := 1, spared
		if s == newcomer {
			most, quiet = a.share, quietNewcomer
		}
		rest := quiet - now.Sub(oldest.since)
		if g.members.Len() > most || rest <= 0 {
			return oldest, 0
		}
		left = min(left, rest)
	}
	return nil, left
}

// pause waits for d, until a socket leaves or rises, or for a slot, which it takes; nil has none.
func (a *admission) pause(ctx context.Context, d time.Duration, slots chan<- struct{}) (taken bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-a.room:
	case <-ctx.Done():
	}
	return false
}

func networkOf(addr net.Addr) netip.Prefix {
	if addr == nil {
		return netip.Prefix{}
	}
	return peer.Network(addr.String())
}
