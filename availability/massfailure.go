package availability

import (
	"context"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// mitras online below which the breaker never trips
	breakerLeast = 20
	breakerHolds = time.Minute
)

// overdue returns the silence from which the breaker counts a mitra. Apps ping out of step, so
// mitras cut off together fall silent one by one, over a pause between two pings. When the first is
// silent, the last has been quiet for StaleAfter less that pause. A punctual app must never be
// overdue, so a StaleAfter below two pauses misses part of the wave.
func overdue(s Settings) time.Duration {
	return max(s.StaleAfter-s.PingInterval, s.PingInterval)
}

func (x *offlinePass) checkBreaker(ctx context.Context) error {
	return x.holdUntil(ctx, heldUntil, x.holds(), 0, heldMassFailure)
}

func (x *offlinePass) holds() time.Duration { return max(x.stale, breakerHolds) }

// breaker holds the sweep if a mitra is silent and most mitras online are silent or overdue: the
// fault is more likely ours. It does so once: those still silent after the hold may go offline, and
// the next hold needs a pass with fewer of them in between.
func (x *offlinePass) breaker(ctx context.Context) error {
	until, err := x.moment(ctx, heldUntil)
	if err != nil {
		return err
	}
	tooMany := x.online >= breakerLeast && len(x.silent) > 0 && x.late > x.online/2
	if tooMany == !until.IsZero() || x.DryRun() {
		return nil
	}
	if !tooMany {
		err := x.Call(ctx, func(ctx context.Context) error {
			return x.rdb.HDel(ctx, x.keys.breaker(), heldUntil).Err()
		})
		if err != nil {
			return fmt.Errorf("availability: lift the breaker: %w", err)
		}
		return nil
	}
	hold := x.holds()
	if err := x.noteMoment(ctx, heldUntil, x.now.Add(hold)); err != nil {
		return err
	}
	x.Log().Warn("nobody goes offline for now: most of those who are online fell silent at once",
		"silent", len(x.silent), "silent_or_overdue", x.late, "online", x.online, "for", hold.String())
	x.RunAgain(time.Now().Add(hold))
	return &janitor.HeldError{Reason: heldMassFailure}
}
