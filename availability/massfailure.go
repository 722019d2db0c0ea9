package availability

import (
	"context"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// breakerLeast is the least number of mitras online for which the breaker holds.
	breakerLeast = 20
	// breakerHolds is the least that the breaker holds.
	breakerHolds = time.Minute
)

// overdue returns the silence after which the breaker counts a mitra. Apps ping out of step, so
// mitras that are cut off at one instant become silent one after the other, for as long as an app
// pauses between two pings. When the first of them is silent, the last has been so for StaleAfter
// less that pause. But an app that pings in time is never overdue: with a StaleAfter below two
// pauses, part of the wave is not counted yet when its first mitras go offline.
func overdue(s Settings) time.Duration {
	return max(s.StaleAfter-s.PingInterval, s.PingInterval)
}

// checkBreaker holds the sweep until the moment that breaker noted.
func (x *offlinePass) checkBreaker(ctx context.Context) error {
	return x.holdUntil(ctx, heldUntil, x.holds(), 0, heldMassFailure)
}

// holds returns how long the breaker holds.
func (x *offlinePass) holds() time.Duration { return max(x.stale, breakerHolds) }

// breaker holds if a mitra is silent and most mitras online are silent or overdue: the fault is
// more likely ours than theirs. It does so once: who is silent still when the hold is over
// may go, and it holds again only after a pass in which fewer were.
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
