package janitor

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	// crowd is the number of instances from which on each contender ticks less often: together they
	// tick often enough.
	crowd = 8
	// rarest is how many times less often at most. No wait is then longer than 0.9 GAP: it is the
	// roster that is counted, and where few on it contend one of them alone must leave no gap.
	rarest = 1.8
)

// listener ticks the witness, on every replica, leading or not, held or paused, and remembers what
// the last tick said. With it goes what a replica should know that does not lead: who does, and
// whether sweeping is paused.
type listener struct {
	guard  *guard.Guard
	gap    time.Duration
	wake   chan struct{} // one slot: tick now
	log    *slog.Logger
	failed bool // the last tick failed, and the log says so; Run's goroutine only

	mu      sync.Mutex
	witness guard.Witness
	at      time.Time // of the tick's request; zero: none has succeeded yet
	err     error     // of the last tick
	holder  lease.Holder
	paused  *Pause
}

func newListener(g *guard.Guard, gap time.Duration, log *slog.Logger) *listener {
	return &listener{guard: g, gap: gap, wake: make(chan struct{}, 1), log: log}
}

// poke asks for a tick at once: something has changed that the last one did not know.
func (l *listener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wait is how long to the next tick: often on the leader, who lives by it; elsewhere so that the
// witness has no gap while nobody leads, however few contend.
func (l *listener) wait(leading bool) time.Duration {
	if leading {
		return l.gap / 5
	}
	l.mu.Lock()
	listed := l.witness.Instances
	l.mu.Unlock()
	third := l.gap / 3
	seldom := min(max(1, float64(listed)/crowd), rarest)
	return time.Duration(float64(third/2+rand.N(third+1)) * seldom)
}

// tick listens once.
func (l *listener) tick(ctx context.Context, leading bool) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(l.gap/2, callTimeout))
	defer cancel()
	w, err := l.guard.Tick(ctx)

	l.mu.Lock()
	first, before := l.at.IsZero(), l.witness
	l.err = err
	if err == nil {
		l.witness, l.at = w, begun
	}
	l.mu.Unlock()

	switch {
	case err != nil && ctx.Err() == context.Canceled:
		// Run is ending.
	case err != nil && !l.failed:
		l.failed = true
		l.log.Warn("witness tick failed", "error", err)
	case err == nil && l.failed:
		l.failed = false
		l.log.Info("witness ticks again")
	}
	if err != nil {
		return
	}
	if first && len(w.ChecksOff) > 0 {
		l.log.Info("server does not offer some checks", "off", w.ChecksOff)
	}
	if !first && !w.Since.Equal(before.Since) {
		level := slog.LevelDebug
		if leading {
			level = slog.LevelWarn
		}
		l.log.Log(ctx, level, "witness starts anew", "reason", w.Reason, "held_for", w.HeldFor)
	}
}

// observed keeps what the look beside a tick found.
func (l *listener) observed(h lease.Holder, paused *Pause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder, l.paused = h, paused
}

// heldFor tells, from the last tick, for how long no delete can be granted yet, and why. Without a
// recent tick it is 0: the guard will say. It is here to spare Redis scans that cannot lead
// anywhere.
func (l *listener) heldFor(now time.Time) (time.Duration, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || now.Sub(l.at) > l.gap {
		return 0, ""
	}
	return max(0, l.witness.HeldFor-now.Sub(l.at)), l.witness.Reason
}

// listening is for how long Redis has been listened to without a hold, as far as this process
// knows; 0 after a gap in its own ticks.
func (l *listener) listening(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := now.Sub(l.at)
	if l.at.IsZero() || since > l.gap {
		return 0
	}
	return l.witness.Listening + since
}
