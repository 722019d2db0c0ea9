package simulate

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// deliver gives up the socket after an error; the frame stays.
func (t *tracker) deliver(ctx context.Context) error {
	lost := t.lose.Swap(false) || rand.New(&t.src).Float64() < t.fleet.cfg.HalfOpen
	if lost && t.one(2) {
		return errCoverage // before anything was written
	}
	for range 1 + mostRepeats {
		if err := t.write(ctx); err != nil {
			return err
		}
		if lost {
			return errCoverage // the answer is lost
		}
		began := time.Now()
		n, err := t.answer(ctx)
		if err != nil {
			return err
		}
		if n == len(t.flight.records) {
			t.acknowledged(time.Since(began))
			return nil
		}
	}
	return errMismatch
}

func (t *tracker) write(ctx context.Context) error {
	t.fleet.count(func(c *Counts) {
		c.Frames++
		if t.flight.written {
			c.Resent++
		}
	})
	t.flight.written = true
	frame := t.flight.frame
	switch {
	case t.one(splitFrames):
		rnd := rand.New(&t.src)
		for len(frame) > 1 && rnd.IntN(3) > 0 {
			n := 1 + rnd.IntN(len(frame)-1)
			if err := t.dev.SendRaw(ctx, frame[:n]); err != nil {
				return err
			}
			frame = frame[n:]
			if !wait.For(ctx, t.within(splitPause)) {
				return context.Cause(ctx)
			}
		}
	case t.one(coalescedFrames):
		t.fleet.count(func(c *Counts) { c.KeepAlives++ })
		frame = append([]byte{0xFF}, frame...)
	}
	return t.dev.SendRaw(ctx, frame)
}

// answer returns the server's number, and answers commands that come before it.
func (t *tracker) answer(ctx context.Context) (int, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, t.fleet.cfg.Timeout, errNoAnswer)
	defer cancel()
	for {
		r, err := t.dev.Receive(waiting)
		if err != nil || r.Commands == nil {
			return r.Acked, err
		}
		if err := t.obey(ctx, r.Commands); err != nil {
			return 0, err
		}
	}
}

func (t *tracker) acknowledged(took time.Duration) {
	t.fleet.count(func(c *Counts) {
		c.Acknowledgements.Add(took)
		c.Acked++
		c.Records += len(t.flight.records)
		if t.flight.backlog {
			c.Backlog -= len(t.flight.records)
		}
	})
	if tell := t.fleet.cfg.Acknowledged; tell != nil {
		tell(t.dev.IMEI(), t.flight.records)
	}
	t.flight = flight{}
	t.ladder.reset()
}

func (t *tracker) obey(ctx context.Context, commands []device.Command) error {
	for _, c := range commands {
		if err := t.dev.Answer(ctx, c, c.Text); err != nil {
			return err
		}
		t.fleet.count(func(c *Counts) { c.Commands++ })
	}
	return nil
}
