package janitor

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/lease"
)

// listener ticks the witness, on every replica, leading or not, held or paused, and remembers what
// the last tick said.
type listener struct {
	guard *guard.Guard
	gap   time.Duration
	wake  chan struct{} // one slot: tick now
	log   *slog.Logger
	ticks *streak.Streak

	others *together.Member // with whom a reserve ticks; for listen alone

	mu   sync.Mutex
	last heard
}

// heard is what a replica knows from its last tick. With it goes what a replica that does not lead
// should know: which one does, and whether sweeping is paused.
type heard struct {
	gap     time.Duration
	witness guard.Witness
	at      time.Time // of the tick's request; zero: none has succeeded yet
	err     error     // of the last tick
	holder  lease.Holder
	paused  *Pause
}

func newListener(g *guard.Guard, gap time.Duration, log *slog.Logger) *listener {
	return &listener{
		guard: g, gap: gap, wake: make(chan struct{}, 1), log: log, last: heard{gap: gap},
		ticks: streak.New(log, "witness tick failed", "witness ticks again"),
	}
}

// poke asks for a tick at once: something has changed that the last one did not know.
func (l *listener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wait returns how long it is to the next tick: a short time on the leader, which needs it to
// delete, and GAP/3 ± 50 % on the others that contend first.
//
// Reserves come every GAP/2, all of a client together, and tick if nobody else has for GAP/3. So
// even one reserve that survives all others leaves no gap, as its tick is at most 5/6 of a GAP
// later than the last one of another. A failed tick is repeated after GAP/10.
func (l *listener) wait(leading, reserve bool) time.Duration {
	third := l.gap / 3
	switch {
	case leading:
		return l.gap / 5
	case !reserve:
		return third/2 + rand.N(third+1)
	case l.heard().err != nil:
		return l.gap / 10
	}
	return l.others.Turns(l.gap / 2)
}

// ticked takes what a tick that began then found. ending: an error is no wonder, Run is ending.
func (l *listener) ticked(begun time.Time, w guard.Witness, err error, leading, ending bool) {
	before := l.heard()
	l.mu.Lock()
	l.last.err = err
	if err == nil {
		l.last.witness, l.last.at = w, begun
	}
	l.mu.Unlock()

	if err == nil || !ending {
		l.ticks.Note(err)
	}
	switch first := before.at.IsZero(); {
	case err != nil:
	case first && !slices.Equal(w.ChecksOff, before.witness.ChecksOff):
		l.log.Info("server does not offer some checks", "off", w.ChecksOff)
	case !first && !w.Since.Equal(before.witness.Since):
		level := slog.LevelDebug
		if leading {
			level = slog.LevelWarn
		}
		l.log.Log(context.Background(), level, "witness starts anew", "reason", w.Reason, "held_for", w.HeldFor)
	}
}

// observed keeps what was read beside a tick. It returns the pause that was read before.
func (l *listener) observed(h lease.Holder, paused *Pause) (before *Pause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.last.paused
	l.last.holder, l.last.paused = h, paused
	return before
}

func (l *listener) heard() heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// heldFor tells for how long no delete can be granted yet, and why. Without a recent tick it is 0:
// the guard will say. It is here to spare Redis scans that cannot lead anywhere.
func (h heard) heldFor(now time.Time) (time.Duration, string) {
	if now.Sub(h.at) > h.gap {
		return 0, ""
	}
	return max(0, h.witness.HeldFor-now.Sub(h.at)), h.witness.Reason
}

// listening is for how long Redis has been listened to without a hold, as far as this process
// knows; 0 after a gap in its own ticks.
func (h heard) listening(now time.Time) time.Duration {
	if now.Sub(h.at) > h.gap {
		return 0
	}
	return h.witness.Listening + now.Sub(h.at)
}
