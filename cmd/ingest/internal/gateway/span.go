package gateway

import (
	"context"
	"log/slog"
	"time"
)

// beginSpan begins the span of a registration: the device has named itself.
func (s *session) beginSpan(ctx context.Context) {
	if start := s.g.cfg.StartSpan; start != nil {
		// The time before says how fast the device was.
		_, s.endSpan = start(ctx, "registration", slog.Duration("named_after", time.Since(s.came)))
	}
}

// greeted ends the span of the registration when that has landed; so later than the device has its
// answer, if Redis was slow. err is why the device was not accepted.
func (s *session) greeted(work context.Context, err error) {
	end := s.endSpan
	if end == nil { // nobody traces, or no IMEI came
		return
	}
	s.endSpan = nil
	outcome := slog.String("outcome", handshakeOutcome(err))
	if s.claim == nil {
		end(err, outcome)
		return
	}
	answered := slog.Duration("answered_after", time.Since(s.came))
	s.g.running.Go(func() {
		// It ends with the socket, at the latest: that releases the claim.
		landed := s.claim.Wait(work)
		end(landed, outcome, answered, slog.Bool("landed", landed == nil))
	})
}
