package gateway

import (
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// rate is how fast one device may have frames stored. A device that is faster waits for its
// acknowledgements, and so sends no faster: it loses nothing. A refusal would not help, since it
// would send the same frame for ever.
type rate struct {
	// what one of each costs; a frame costs what its records or its bytes do, whichever is more
	record, octet time.Duration
	saved         time.Duration // the most that a device which sent little may have saved up
}

// deviceRate is 200 records or 32 KiB a second, and ten seconds' worth at once. A real device is
// below that by itself: a frame of 1,280 bytes has 10 to 20 records, and the next one leaves after
// the acknowledgement, a tenth of a second later on a good network. A full memory of 192,000
// records is delivered in 16 minutes. The most that one frame waits is 1.3 s (255 records); the
// shortest time that a device can be set to wait for its acknowledgement is five.
var deviceRate = rate{record: time.Second / 200, octet: time.Second / (32 << 10), saved: 10 * time.Second}

// charge takes a frame from what a socket has saved up. It returns until when the socket has now
// paid; if that is in the future, the frame has to wait until then.
func (r rate) charge(paid, now time.Time, records, octets int) time.Time {
	if least := now.Add(-r.saved); paid.Before(least) {
		paid = least
	}
	return paid.Add(max(time.Duration(records)*r.record, time.Duration(octets)*r.octet))
}

// pace waits until the device may have a frame stored. A socket begins with nothing saved up, and
// one that was closed from outside meanwhile stores nothing any more, so that connecting again
// gains a device nothing. A gateway that stops does not wait: each socket finishes the frame under
// way.
func (s *session) pace(frame teltonika.Frame) error {
	now := time.Now()
	s.paid = s.g.rate.charge(s.paid, now, int(frame.Count), len(frame.Raw))
	left := s.paid.Sub(now)
	if left <= 0 {
		return nil
	}
	s.g.metrics.slowed.Inc()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.g.stopping:
	}
	if s.closeReason.Load() != nil {
		return errEnded
	}
	return nil
}
