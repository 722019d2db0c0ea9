package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rollcall-redis/rollcall/availability"
)

var errLate = errors.New("the server's clock is past the end of the call")

// Clock implements [availability.Source].
func (s *Source) Clock() *availability.Clock { return &s.clock }

// inTime passes f the end of ctx by the server's clock, or nothing if that is unknown. The network
// may bring a call that was given up when a newer one has been made: the server refuses it. A call
// that is refused too early, as a clock was set, is made again.
func (s *Source) inTime(
	ctx context.Context, f func(until pgtype.Timestamptz, at *time.Time) (late bool, err error),
) error {
	end, _ := ctx.Deadline()
	for again := false; ; again = true {
		var there time.Time
		begun := time.Now()
		late, err := f(momentOf(s.clock.At(end)), &there)
		if err != nil {
			return err
		}
		if late {
			s.clock.Forget()
		}
		if !there.IsZero() {
			s.clock.Learn(begun, there)
		}
		if !late {
			return nil
		}
		if again {
			return errLate
		}
	}
}
