package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
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

var keepAlive = []byte{0xFF}

var (
	errCoverage = errors.New("sim: coverage lost")
	errMismatch = errors.New("sim: acknowledged with another number, again and again")
	errNoAnswer = errors.New("sim: not acknowledged in time")
	errRefused  = errors.New("sim: refused")
)

// The documented waits before each attempt to connect, in minutes; the last repeats.
var rungs = [...]int{0, 1, 1, 2, 2, 4, 6, 8, 10}

// tracker is used by its own goroutine alone, except for lose.
type tracker struct {
	*Device
	of      *Simulation
	src     rand.PCG // of its draws
	seed    uint64   // of its tracks
	stored  int      // records left of its backlog
	flight  flight
	rung    int // attempts since the last acknowledgement
	due     time.Time
	keep    time.Time // next keep-alive, if before due
	greeted bool      // it was accepted once

	lose atomic.Bool // coverage, at the next frame
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
	defer t.Close()
	cfg := &t.of.cfg
	if !wait.For(ctx, t.within(cfg.Ramp)) {
		return
	}
	t.due = time.Now().Add(t.within(cfg.Interval))
	t.keep = t.due
	for wait.For(ctx, t.climb()) {
		if err := t.connect(ctx); err == nil {
			t.leave(t.serve(ctx))
		} else if ctx.Err() == nil {
			t.of.count(func(c *Counts) {
				c.Failed++
				c.LastFailure = err
				if errors.Is(err, errRefused) {
					c.Refused++
				}
			})
		}
	}
}

func (t *tracker) climb() time.Duration {
	minutes := rungs[t.rung]
	t.rung = min(t.rung+1, len(rungs)-1)
	return time.Duration(minutes) * t.of.cfg.LadderUnit
}

func (t *tracker) connect(ctx context.Context) error {
	targets := *t.of.targets.Load()
	addr := targets[rand.New(&t.src).IntN(len(targets))]
	accepted, err := t.Connect(ctx, addr)
	if err != nil {
		return err
	}
	if !accepted {
		return fmt.Errorf("%w by %s", errRefused, addr)
	}
	t.of.count(func(c *Counts) {
		c.Accepted++
		c.Connected++
		if t.greeted {
			c.Reconnects++
		}
	})
	t.greeted = true
	return nil
}

// leave keeps the socket open after lost coverage: the server must not notice.
func (t *tracker) leave(why error) {
	lost := errors.Is(why, errCoverage)
	if lost {
		t.rung = 0    // nobody refused it
		t.DropStale() // the late close, and at most two sockets per device
		t.HalfOpen()
	} else {
		t.Close()
	}
	t.of.count(func(c *Counts) {
		c.Connected--
		if lost {
			c.HalfOpen++
		}
	})
}

func (t *tracker) serve(ctx context.Context) error {
	for {
		next := t.deliver
		if t.flight.frame == nil && !t.load() {
			next = t.rest
		}
		if err := next(ctx); err != nil {
			return err
		}
	}
}

func (t *tracker) load() bool {
	cfg := &t.of.cfg
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
	} else if records = t.backlog(); len(records) == 0 {
		return false
	}
	frame := teltonika.AppendFrame(nil, cfg.Codec, records...)
	t.flight = flight{frame: frame, records: records, backlog: late < 0}
	return true
}

// backlog takes the newest stored records. Each frame has a track of its own: the records would
// take many times as much memory.
func (t *tracker) backlog() []teltonika.Record {
	n := min(t.stored, MostRecords)
	t.stored -= n
	records := trackFrom(t.seed+1+uint64(t.stored), t.stored).Next(n)
	slices.Reverse(records)
	return records
}

func (t *tracker) rest(ctx context.Context) error {
	until := t.due
	if t.keep.Before(until) {
		until = t.keep
	}
	listening, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	_, commands, err := t.Receive(listening)
	switch {
	case err == nil:
		return t.obey(ctx, commands) // ignores an unexpected answer
	case listening.Err() == nil || ctx.Err() != nil:
		return err
	case until.Before(t.due):
		t.keep = t.due
		t.of.count(func(c *Counts) { c.KeepAlives++ })
		return t.SendRaw(ctx, keepAlive)
	}
	return nil
}

// deliver gives up the socket after an error; the frame stays.
func (t *tracker) deliver(ctx context.Context) error {
	lost := t.lose.Swap(false) || rand.New(&t.src).Float64() < t.of.cfg.HalfOpen
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
	t.of.count(func(c *Counts) {
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
			if err := t.SendRaw(ctx, frame[:n]); err != nil {
				return err
			}
			frame = frame[n:]
			if !wait.For(ctx, t.within(splitPause)) {
				return context.Cause(ctx)
			}
		}
	case t.one(coalescedFrames):
		t.of.count(func(c *Counts) { c.KeepAlives++ })
		frame = slices.Concat(keepAlive, frame)
	}
	return t.SendRaw(ctx, frame)
}

// answer returns the server's number, and answers commands that come before it.
func (t *tracker) answer(ctx context.Context) (int, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, t.of.cfg.Timeout, errNoAnswer)
	defer cancel()
	for {
		acked, commands, err := t.Receive(waiting)
		if err != nil || acked > 0 {
			return acked, err
		}
		if err := t.obey(ctx, commands); err != nil {
			return 0, err
		}
	}
}

func (t *tracker) acknowledged(took time.Duration) {
	records := t.flight.records
	t.of.count(func(c *Counts) {
		c.Acknowledgements.Add(took)
		c.Acked++
		c.Records += len(records)
		if t.flight.backlog {
			c.Backlog -= len(records)
		}
	})
	if tell := t.of.cfg.Acknowledged; tell != nil {
		tell(t.imei, records)
	}
	t.flight, t.rung = flight{}, 0
}

func (t *tracker) obey(ctx context.Context, commands []Command) error {
	for _, c := range commands {
		if err := t.socket().say(ctx, c.Codec, t.Executes(c, c.Text)); err != nil {
			return err
		}
		t.of.count(func(c *Counts) { c.Commands++ })
	}
	return nil
}

// Epoch is the time of every track's first record, in Unix milliseconds.
const Epoch = 1_700_000_000_000

// Step is between two records, in milliseconds.
const Step = 10_000

// Track makes the records of a vehicle that drives around a town, the same for the same seed, for
// any codec. IMEI and time identify a record. It is not safe for concurrent use.
type Track struct {
	src      rand.PCG
	next     uint64
	lon, lat int32
	angle    int
	speed    int
	odometer uint64 // metres
}

// NewTrack returns the track of a seed.
func NewTrack(seed uint64) *Track { return trackFrom(seed, 0) }

// trackFrom returns one that begins so many records later.
func trackFrom(seed uint64, records int) *Track {
	t := &Track{next: Epoch + uint64(records)*Step}
	t.src.Seed(seed, 0)
	rnd := rand.New(&t.src)
	t.angle = rnd.IntN(360)
	t.lon = 252_797_000 + rnd.Int32N(1_000_000) - 500_000
	t.lat = 546_872_000 + rnd.Int32N(1_000_000) - 500_000
	return t
}

// Next returns the next n records.
func (t *Track) Next(n int) []teltonika.Record {
	records := make([]teltonika.Record, n)
	for i := range records {
		records[i] = t.step()
	}
	return records
}

func (t *Track) step() teltonika.Record {
	rnd := rand.New(&t.src)
	t.angle = (t.angle + rnd.IntN(61) + 330) % 360
	t.speed = min(max(t.speed+rnd.IntN(31)-14, 0), 130)
	metres := t.speed * (Step / 1000) * 10 / 36
	t.odometer += uint64(metres)
	// Straight along one axis: no floating point that could differ between machines.
	along := int32(metres * 90) // a metre is about 90 units of 1e-7 degrees of latitude
	switch t.angle / 90 {
	case 0:
		t.lat += along
	case 1:
		t.lon += along
	case 2:
		t.lat -= along
	default:
		t.lon -= along
	}
	ignition := uint64(0)
	if t.speed > 0 {
		ignition = 1
	}
	io := teltonika.NewElements(
		teltonika.Element{ID: 239, Size: 1, Value: ignition},
		teltonika.Element{ID: 21, Size: 1, Value: uint64(rnd.IntN(6))}, // GSM signal
		// external voltage, mV
		teltonika.Element{ID: 66, Size: 2, Value: uint64(12_000 + rnd.IntN(2_500))},
		teltonika.Element{ID: 16, Size: 4, Value: t.odometer & 0xFFFF_FFFF},
		// driver's key: mostly above what a double can hold
		teltonika.Element{ID: 78, Size: 8, Value: rnd.Uint64()},
	)
	r := teltonika.Record{
		Timestamp: t.next, Longitude: t.lon, Latitude: t.lat, Altitude: int16(100 + rnd.IntN(50)),
		Angle: uint16(t.angle), Speed: uint16(t.speed), Satellites: byte(4 + rnd.IntN(12)), IO: io,
	}
	t.next += Step
	return r
}
