package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// One in this many.
const (
	splitFrames     = 20 // in pieces
	coalescedFrames = 20 // with a keep-alive
	keptAlive       = 4  // pauses have a keep-alive
)

const (
	mostRepeats = 4                     // on one socket
	splitPause  = 20 * time.Millisecond // at most, between two pieces
)

var (
	errCoverage = errors.New("simulate: coverage lost")
	errMismatch = errors.New("simulate: acknowledged with another number, again and again")
	errNoAnswer = errors.New("simulate: not acknowledged in time")
	errRefused  = errors.New("simulate: refused")
)

// tracker is used by its own goroutine alone, except for at and lose.
type tracker struct {
	fleet   *Fleet
	dev     *device.Device
	src     rand.PCG // of its draws
	track   device.Track
	stored  backlog
	flight  flight
	ladder  ladder
	due     time.Time
	keep    time.Time // next keep-alive, if before due
	greeted bool      // it was accepted once

	at   atomic.Pointer[string] // connected target
	lose atomic.Bool            // coverage, at the next frame
}

type flight struct {
	frame   []byte
	records []teltonika.Record
	written bool
	backlog bool
}

func (t *tracker) one(n int) bool { return rand.New(&t.src).IntN(n) == 0 }

func (t *tracker) within(d time.Duration) time.Duration {
	return time.Duration(rand.New(&t.src).Int64N(int64(max(d, 1))))
}

func (t *tracker) run(ctx context.Context) {
	defer t.dev.Close()
	cfg := &t.fleet.cfg
	t.stored.store(&t.track, cfg.Backlog)
	if !wait.For(ctx, t.within(cfg.Ramp)) {
		return
	}
	t.due = time.Now().Add(t.within(cfg.Interval))
	t.keep = t.due
	for wait.For(ctx, t.ladder.climb(cfg.LadderUnit)) {
		if err := t.connect(ctx); err == nil {
			t.leave(t.serve(ctx))
		} else if ctx.Err() == nil {
			t.fleet.count(func(c *Counts) {
				c.Failed++
				c.LastFailure = err
				if errors.Is(err, errRefused) {
					c.Refused++
				}
			})
		}
	}
}

func (t *tracker) connect(ctx context.Context) error {
	targets := *t.fleet.targets.Load()
	addr := targets[rand.New(&t.src).IntN(len(targets))]
	accepted, err := t.dev.Connect(ctx, addr)
	if err != nil {
		return err
	}
	if !accepted {
		return fmt.Errorf("%w by %s", errRefused, addr)
	}
	t.fleet.count(func(c *Counts) {
		c.Accepted++
		c.Connected++
		if t.greeted {
			c.Reconnects++
		}
	})
	t.greeted = true
	t.at.Store(&addr)
	return nil
}

// leave keeps the socket open after lost coverage: the server must not notice.
func (t *tracker) leave(why error) {
	t.at.Store(nil)
	lost := errors.Is(why, errCoverage)
	t.fleet.count(func(c *Counts) {
		c.Connected--
		if lost {
			c.HalfOpen++
		}
	})
	if !lost {
		t.dev.Close()
		return
	}
	t.ladder.reset()  // nobody refused it
	t.dev.DropStale() // the late close, and at most two sockets per device
	t.dev.HalfOpen()
}

func (t *tracker) serve(ctx context.Context) error {
	for {
		if t.flight.frame == nil && !t.load() {
			if err := t.rest(ctx); err != nil {
				return err
			}
			continue
		}
		if err := t.deliver(ctx); err != nil {
			return err
		}
	}
}

func (t *tracker) load() bool {
	cfg := &t.fleet.cfg
	var records []teltonika.Record
	late := time.Since(t.due)
	if late >= 0 {
		missed := int(min(late/cfg.Interval, MostRecords)) + 1
		frames := max(1, min(missed, MostRecords/cfg.Records))
		records = t.track.Next(frames * cfg.Records)
		t.due = t.due.Add(time.Duration(frames) * cfg.Interval)
		t.keep = t.due
		if t.one(keptAlive) {
			t.keep = t.due.Add(-cfg.Interval / 2)
		}
	} else if records = t.stored.take(); records == nil {
		return false
	}
	frame, err := teltonika.AppendFrame(nil, cfg.Codec, records...)
	if err != nil {
		// a bug: see device.Track
		panic("simulate: a track's records do not fit into their codec: " + err.Error())
	}
	t.flight = flight{frame: frame, records: records, backlog: late < 0}
	return true
}

func (t *tracker) rest(ctx context.Context) error {
	until := t.due
	if t.keep.Before(until) {
		until = t.keep
	}
	listening, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	r, err := t.dev.Receive(listening)
	switch {
	case err == nil:
		return t.obey(ctx, r.Commands) // ignores an unexpected answer
	case listening.Err() == nil || ctx.Err() != nil:
		return err
	case until.Before(t.due):
		t.keep = t.due
		t.fleet.count(func(c *Counts) { c.KeepAlives++ })
		return t.dev.KeepAlive(ctx)
	}
	return nil
}

// The documented waits before each attempt to connect, in minutes; the last repeats.
var rungs = [...]int{0, 1, 1, 2, 2, 4, 6, 8, 10}

// ladder counts the attempts since the last acknowledgement.
type ladder int

func (l *ladder) climb(minute time.Duration) time.Duration {
	rung := rungs[*l]
	*l = min(*l+1, ladder(len(rungs)-1))
	return time.Duration(rung) * minute
}

func (l *ladder) reset() { *l = 0 }
