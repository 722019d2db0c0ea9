package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// clock estimates the server's, from the times that answers contain.
type clock struct {
	mu          sync.Mutex
	there, here time.Time // zero: unknown
}

// slow is how long an answer may take whose time is believed. The estimate may be ahead by as much.
const slow = 500 * time.Millisecond

var errLate = errors.New("the server's clock is past the end of the call")

func (c *clock) said(begun, there time.Time, believe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there.IsZero() && !believe {
		return
	}
	if believe || c.there.IsZero() || time.Since(begun) < slow {
		c.there, c.here = there, begun
	}
}

func (c *clock) at(then time.Time) pgtype.Timestamptz {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there.IsZero() {
		return pgtype.Timestamptz{}
	}
	return momentOf(c.there.Add(then.Sub(c.here)))
}

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
		late, err := f(s.clock.at(end), &there)
		if err != nil {
			return err
		}
		s.clock.said(begun, there, late)
		if !late {
			return nil
		}
		if again {
			return errLate
		}
	}
}
