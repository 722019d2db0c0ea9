package gateway

import (
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// rate makes a device wait for its acknowledgements. After a refusal it would send the same frame
// for ever.
type rate struct {
	// A frame costs the larger of its records' and its bytes' cost.
	record, octet time.Duration
	saved         time.Duration
}

// deviceRate is above what real devices send: a frame of 1,280 bytes has 10 to 20 records, and the
// next one leaves after the acknowledgement, a tenth of a second later on a good network. A full
// memory of 192,000 records is delivered in 16 minutes. A frame waits at most 1.3 s (255 records);
// no device can be set to wait less than five seconds for its acknowledgement.
var deviceRate = rate{record: time.Second / 200, octet: time.Second / (32 << 10), saved: 10 * time.Second}

// charge returns the time up to which the socket has paid.
func (r rate) charge(paid, now time.Time, records, octets int) time.Time {
	if least := now.Add(-r.saved); paid.Before(least) {
		paid = least
	}
	return paid.Add(max(time.Duration(records)*r.record, time.Duration(octets)*r.octet))
}

// pace waits until the frame may be stored, or until the gateway drains.
func (s *session) pace(frame teltonika.Frame) error {
	now := time.Now()
	octets := len(frame.Raw)
	if frame.Codec.IsCommand() { // stored as hex, and a device cannot fill a second with serial data
		octets *= 4
	}
	s.paid = s.g.rate.charge(s.paid, now, int(frame.Count), octets)
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
