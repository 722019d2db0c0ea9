package gateway

import (
	"context"
	"log/slog"
	"time"
)

func (s *session) beginSpan(ctx context.Context) {
	if start := s.g.cfg.StartSpan; start != nil {
		// named_after is the time before the span: how fast the device was.
		_, s.endSpan = start(ctx, "registration", slog.Duration("named_after", time.Since(s.came)))
	}
}

// greeted ends the span once the registration has landed, maybe after the device's answer.
func (s *session) greeted(work context.Context, err error) {
	end := s.endSpan
	if end == nil { // tracing is off, or no IMEI came
		return
	}
	s.endSpan = nil
	outcome := slog.String("outcome", handshakeOutcome(err))
	if s.claim == nil {
		end(err, outcome)
		return
	}
	answered := slog.Duration("answered_after", time.Since(s.came))
	s.g.serving.Go(func() {
		// It ends with the socket at the latest: that releases the claim.
		landed := s.claim.Wait(work)
		end(landed, outcome, answered, slog.Bool("landed", landed == nil))
	})
}
