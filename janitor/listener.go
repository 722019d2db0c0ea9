package janitor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
)

// listener ticks the witness, leading or not, held or paused.
type listener struct {
	guard *guard.Guard
	gap   time.Duration
	wake  chan struct{} // one slot: tick now
	log   *slog.Logger
	ticks *streak.Streak

	others *together.Member // this client's others, to tick with; used only by listen
	told   []string         // the reasons of the present hold that were logged; as others

	mu   sync.Mutex
	last heard
}

// heard is the result of the last tick, with the current leader and pause.
type heard struct {
	gap     time.Duration
	witness guard.Witness
	at      time.Time // of the tick's request; zero: none has succeeded yet
	err     error
	holder  lease.Holder
	paused  *Pause
}

func newListener(g *guard.Guard, gap time.Duration, log *slog.Logger) *listener {
	return &listener{
		guard: g, gap: gap, wake: make(chan struct{}, 1), log: log, last: heard{gap: gap},
		ticks: streak.New(log, "witness tick failed", "witness ticks again"),
	}
}

func (l *listener) poke() { wait.Nudge(l.wake) }

// wait returns the time to the next tick: short on the leader, which needs ticks to delete. Others
// come every GAP/2 and tick if nobody has for GAP/3, so even a lone survivor ticks at most 5/6 GAP
// after the last tick. A failed tick is repeated after GAP/10.
func (l *listener) wait(leading bool) time.Duration {
	switch {
	case leading:
		return l.gap / 5
	case l.heard().err != nil:
		return l.gap / 10
	}
	return l.others.Turns(l.gap / 2)
}

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
		l.log.Warn("some checks are off: this user may not INFO, or the server lacks it", "off", w.ChecksOff)
	case !first && !w.Since.Equal(before.witness.Since):
		held, _ := before.heldFor(begun)
		l.held(w, held > 0, leading)
	}
}

// held logs a hold once while it lasts, for each of its reasons: one that lasts begins anew with
// each tick.
func (l *listener) held(w guard.Witness, lasting, leading bool) {
	if !lasting {
		l.told = nil
	}
	level := slog.LevelDebug
	if leading && !slices.Contains(l.told, w.Reason) {
		level, l.told = slog.LevelWarn, append(l.told, w.Reason)
	}
	l.log.Log(context.Background(), level, "hold began", "reason", w.Reason, "held_for", w.HeldFor)
}

func (l *listener) observed(h lease.Holder, paused *Pause) (before *Pause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.last.paused
	l.last.holder, l.last.paused = h, paused
	return before
}

// resumed reports whether a pause was known, and forgets it.
func (l *listener) resumed() (known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, l.last.paused = l.last.paused != nil, nil
	return known
}

func (l *listener) heard() heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// heldFor returns how long the guard will refuse deletes, and why; 0 without a recent tick. It only
// spares Redis useless scans: the guard decides.
func (h heard) heldFor(now time.Time) (time.Duration, string) {
	if now.Sub(h.at) > h.gap {
		return 0, ""
	}
	return max(0, h.witness.HeldFor-now.Sub(h.at)), h.witness.Reason
}

// evicting reports whether Redis has evicted keys so lately that sweeps which judge no owner are
// held.
func (h heard) evicting(now time.Time) bool {
	since := now.Sub(h.at)
	return since <= h.gap && h.witness.EvictingFor > since
}

// listening is 0 after a gap in this process' ticks.
func (h heard) listening(now time.Time) time.Duration {
	if now.Sub(h.at) > h.gap {
		return 0
	}
	return h.witness.Listening + now.Sub(h.at)
}
