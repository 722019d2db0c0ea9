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
	// manyUnidentified bounds open sockets without an IMEI. A device sends its IMEI at once, so only
	// an attack has more of them.
	manyUnidentified = 4096
	// spared is how long the only such socket of an address is safe: a device on a slow radio needs
	// a second or two for its IMEI and its first frame.
	spared = 3 * time.Second
	// manyRegistrations bounds concurrent registrations. Without Redis each takes a second: 100,000
	// devices that connect together all get their answer within 25 s. They give up at 30.
	manyRegistrations = 4096
	// reports is how many frames prove that a device reports: its socket is never closed to make
	// room.
	reports = 3
	// newcomers is a divisor: in a full replica one address may hold 1/32 of the sockets with
	// newcomers, the devices that have sent a frame and do not report yet.
	newcomers = 32
	// quietNewcomer is how long a newcomer's socket may be silent in a full replica.
	quietNewcomer = 10 * time.Minute
	// lookAgain is the longest pause before a full replica looks for room again: a socket that was
	// closed to make room may be in the middle of its registration.
	lookAgain = 100 * time.Millisecond
	// manyEnding is how many sockets that were closed to make room may still be ending when their
	// places are taken. One that is registering takes up to a second, and a flood brings thousands
	// in that time. Their descriptors are free at once.
	manyEnding = 1024
)

// A standing is how far a socket has proved itself.
type standing int

const (
	unidentified standing = iota // no IMEI
	unproven                     // an IMEI, which anybody can invent
	newcomer                     // frames with a right checksum, but fewer than reports
	proven                       // a device that reports
)

// admission keeps new sockets out of each other's way. Sockets earn their slots with frames. To
// make room, admission closes a socket of the lowest standing: the oldest from the address with
// the most of them. So a flood from few addresses displaces itself, and never a device that
// reports. Registrations are queued, and none is refused.
type admission struct {
	most  int           // bound of sockets without an IMEI
	share int           // bound of newcomers per address
	room  chan struct{} // holds a token once a socket has left or risen
	slots chan struct{} // one taken per running registration

	mu     sync.Mutex
	crowds [proven]*crowd
	ending int // sockets that have not ended though others have their places
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

// identified records that a socket has sent an IMEI, and its address as given by a proxy.
func (a *admission) identified(s *session) { a.rise(s, unproven, networkOf(s.conn.RemoteAddr())) }

func (a *admission) reported(s *session, n int) {
	if n >= reports {
		a.rise(s, proven, netip.Prefix{})
	} else {
		a.rise(s, newcomer, s.address)
	}
}

// leave removes a socket that has ended. Further calls do nothing.
func (a *admission) leave(s *session) { a.rise(s, proven, netip.Prefix{}) }

// rise moves a socket to the end of a crowd.
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

// wait returns once there is room for another socket without an IMEI, or when ctx ends. It closes
// surplus ones.
func (a *admission) wait(ctx context.Context) {
	for a.count(unidentified) >= a.most {
		s, left := a.least(unidentified, unidentified)
		if s != nil {
			a.leave(s)
			s.end(endCrowded)
			continue
		}
		a.sleep(ctx, left)
		if ctx.Err() != nil {
			return
		}
	}
}

// take takes a slot for an open socket. While none is free it closes the socket that deserves its
// slot least and takes that slot, or waits if none may be closed. It returns false when ctx has
// ended.
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
		timer := time.NewTimer(left)
		select {
		case slots <- struct{}{}:
			timer.Stop()
			return true
		case <-timer.C:
		case <-a.room: // a socket that was safe may be open to closing now
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// vacate passes a closed socket's slot on. It returns false if the socket has ended, or too many
// others are still ending.
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

// ended frees the slot of a socket that has ended, unless it was passed on.
func (a *admission) ended(s *session, slots chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.over = true; s.vacated {
		a.ending--
		return
	}
	<-slots
}

// least returns the socket of these standings that deserves its place least. If none may be
// closed yet, it returns how long to wait.
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

func (a *admission) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.room:
	case <-ctx.Done():
	}
}

// networkOf is peer.Network for addresses that may be nil.
func networkOf(addr net.Addr) netip.Prefix {
	if addr == nil {
		return netip.Prefix{}
	}
	return peer.Network(addr.String())
}
