package registry

import "time"

const (
	// clocksAgree is by how much the readings of two owners may differ.
	clocksAgree = time.Second
	// stepped is the least by which the server's clock, or that of this machine, can have stepped.
	stepped = 100 * time.Millisecond
)

// A clock is the server's, as seen from here.
type clock struct {
	ms   int64     // the server's time
	at   time.Time // then; zero: unknown
	rtt  time.Duration
	back int64 // ms by which it has stepped back in all
}

// read takes a reply's time. The shortest round trip of the last minute counts, unless the clock
// has stepped since: that of the server, or this machine was suspended.
func (k *clock) read(ms int64, sent, got time.Time) {
	rtt := got.Sub(sent)
	mid := sent.Add(rtt / 2)
	known := !k.at.IsZero()
	if known && mid.Before(k.at) {
		return
	}
	step := time.Duration(ms-k.when(mid)) * time.Millisecond
	far := known && step.Abs() > stepped+(rtt+k.rtt)/2
	if far && step < 0 {
		k.back -= step.Milliseconds()
	}
	if !known || far || rtt <= k.rtt || mid.Sub(k.at) > time.Minute {
		k.ms, k.at, k.rtt = ms, mid, rtt
	}
}

func (k *clock) when(t time.Time) int64 { return k.ms + t.Sub(k.at).Milliseconds() }

// agrees reports whether another owner's reading of now is like this one's. If not, its message was
// slow, or one of the two has not noticed yet that the clock has stepped.
func (k *clock) agrees(theirs int64, now time.Time) bool {
	differ := time.Duration(k.when(now)-theirs) * time.Millisecond
	return !k.at.IsZero() && differ.Abs() <= clocksAgree
}

// stamp fixes when a handshake was, once a reply has been read that is later. If this machine is
// suspended from now on, the handshake would seem younger.
func (k *clock) stamp(c *Claim) {
	if c.at == 0 {
		c.at = k.when(c.made) + k.back
	}
}

// handshake returns the server's time of a handshake. If the server's clock steps back, it goes
// back as well: newer ones count from the new time.
func (k *clock) handshake(c *Claim) int64 {
	if c.at == 0 {
		return k.when(c.made)
	}
	return c.at - k.back
}
