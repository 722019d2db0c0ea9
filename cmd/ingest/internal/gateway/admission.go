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
	// manyUnidentified is how many sockets without an IMEI may be open. A device sends its IMEI at
	// once. Only an attack has more of them.
	manyUnidentified = 4096
	// spared is for how long the only such socket of an address stays in any case: a device on a slow
	// radio needs a second or two for its IMEI and its first frame.
	spared = 3 * time.Second
	// manyRegistrations is how many devices are registered at once. Without Redis each takes a second.
	// Then 100,000 devices that come together all have their answer within 25 s. They give up at 30.
	manyRegistrations = 4096
	// reports is how many frames make a device one that reports: its socket is never closed to make
	// room.
	reports = 3
	// newcomers: in a full replica one address may hold 1/32 of the sockets with devices that have
	// sent a frame and do not report yet.
	newcomers = 32
	// quietNewcomer is how long such a socket may be silent in a full replica.
	quietNewcomer = 10 * time.Minute
	// lookAgain is how long a full replica waits at most before it looks for room again: a socket that
	// was closed to make room may be in the middle of its registration.
	lookAgain = 100 * time.Millisecond
	// manyEnding is how many sockets that were closed to make room may be over later than their places
	// are taken: one in the middle of its registration takes up to a second, and a flood brings
	// thousands in that time. Their descriptors are free at once.
	manyEnding = 1024
)

// A standing is what a socket has shown so far.
type standing int

const (
	unidentified standing = iota // no IMEI
	unproven                     // an IMEI, which anybody can invent
	newcomer                     // frames with a right checksum, but fewer than reports
	proven                       // a device that reports
)

// admission keeps new sockets from being in each other's way. A slot is earned by frames. To make
// room it closes a socket of the lowest standing: the oldest one of the address that has most of
// them. So a flood from few addresses displaces itself, and no device that reports. Devices wait
// for one another's registration, and none is refused.
type admission struct {
	most  int           // sockets without an IMEI
	share int           // newcomers of an address
	room  chan struct{} // holds a token when a socket has left, or has a higher standing
	slots chan struct{} // one taken for each registration under way

	mu     sync.Mutex
	crowds [proven]*crowd
	ending int // sockets whose places others have, and that are not over yet
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

// count is the number of sockets of a standing.
func (a *admission) count(s standing) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.crowds[s].size
}

// enter adds a new socket.
func (a *admission) enter(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.standing = unidentified
	a.crowds[unidentified].add(s, networkOf(s.under.RemoteAddr()), s.came)
}

// identified notes the IMEI of a socket, and the address that a proxy names.
func (a *admission) identified(s *session) { a.rise(s, unproven, networkOf(s.conn.RemoteAddr())) }

// reported notes the n-th frame of a socket with a right checksum.
func (a *admission) reported(s *session, n int) {
	if n >= reports {
		a.rise(s, proven, netip.Prefix{})
	} else {
		a.rise(s, newcomer, s.address)
	}
}

// leave removes a socket that has ended. It may be called again.
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

// wait returns when there is room for another socket without an IMEI, or when ctx ends. It closes
// those that are too many.
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

// take takes one of the slots for open sockets. While none is free it closes the socket that
// deserves its slot least, and takes its slot over; it waits if none may be closed. It returns
// false when ctx has ended.
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
		case <-a.room: // it may be that one may go which might not
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// vacate gives the slot of a socket that was closed to another one. It returns false if the socket
// is over, or too many are still on their way out.
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

// ended gives back the slot of a socket that is over, unless another has it.
func (a *admission) ended(s *session, slots chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.over = true; s.vacated {
		a.ending--
		return
	}
	<-slots
}

// least returns the socket that deserves its place least, of these standings. If none may be closed
// yet it returns for how long to wait.
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

// networkOf is peer.Network of an address, which a connection need not have.
func networkOf(addr net.Addr) netip.Prefix {
	if addr == nil {
		return netip.Prefix{}
	}
	return peer.Network(addr.String())
}
