package gateway

import (
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// rate is how fast one device may have frames stored. A faster device waits for its
// acknowledgements. So it sends no faster, and loses nothing. After a refusal it would send the
// same frame for ever.
type rate struct {
	// The cost of one. A frame costs what its records or its bytes cost, whichever is more.
	record, octet time.Duration
	saved         time.Duration // the most that a device which sent little may have saved up
}

// deviceRate is 200 records or 32 KiB a second, and ten seconds' worth at once. A real device is
// slower: a frame of 1,280 bytes has 10 to 20 records, and the next one leaves after the
// acknowledgement, a tenth of a second later on a good network. A full memory of 192,000 records is
// delivered in 16 minutes. One frame waits at most 1.3 s (255 records). The shortest time that a
// device can be set to wait for its acknowledgement is five.
var deviceRate = rate{record: time.Second / 200, octet: time.Second / (32 << 10), saved: 10 * time.Second}

// charge takes a frame from what a socket has saved up. It returns until when the socket has now
// paid. If that is in the future, the frame must wait until then.
func (r rate) charge(paid, now time.Time, records, octets int) time.Time {
	if least := now.Add(-r.saved); paid.Before(least) {
		paid = least
	}
	return paid.Add(max(time.Duration(records)*r.record, time.Duration(octets)*r.octet))
}

// pace waits until the device may have a frame stored. A socket begins with nothing saved up. If
// the gateway has closed it meanwhile, pace fails and the frame is not stored, so that connecting
// again gains a device nothing. A gateway that drains does not wait: each socket finishes the frame
// under way.
func (s *session) pace(frame teltonika.Frame) error {
	now := time.Now()
	s.paid = s.g.rate.charge(s.paid, now, int(frame.Count), len(frame.Raw))
	left := s.paid.Sub(now)
	if left <= 0 {
		return nil
	}
	s.g.metrics.slowed.Inc()
	wait.For(s.g.stopping, left)
	if s.endReason() != "" {
		return errEnded
	}
	return nil
}
