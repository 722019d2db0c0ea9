package workforce

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

type app struct {
	force *Force
	id    string
	src   rand.PCG // used only by run's goroutine
	book

	fate sync.Mutex         // for the fields below
	die  context.CancelFunc // nil while the app is dead
	back chan struct{}      // closed when it comes back
}

// chance is false after Quiet.
func (a *app) chance(p float64) bool {
	return p > 0 && !a.force.isQuiet() && rand.New(&a.src).Float64() < p
}

// about returns half to one and a half of d.
func (a *app) about(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.New(&a.src).Int64N(int64(d)+1))
}

func (a *app) run(ctx context.Context) {
	ramp := time.Duration(rand.New(&a.src).Int64N(int64(a.force.cfg.Ramp) + 1))
	if !wait.For(ctx, ramp) {
		return
	}
	for ctx.Err() == nil {
		life, die := context.WithCancel(ctx)
		a.fate.Lock()
		a.die, a.back = die, make(chan struct{})
		back := a.back
		a.fate.Unlock()
		a.turns(Up)
		chosen := a.live(life)
		a.turns(Dead)
		a.fate.Lock()
		a.die = nil
		a.fate.Unlock()
		die()
		var late <-chan time.Time
		if chosen {
			timer := time.NewTimer(a.about(a.force.cfg.DeadFor))
			defer timer.Stop() // one per death, so there are few
			late = timer.C
		}
		select {
		case <-ctx.Done():
		case <-back:
		case <-late:
		}
	}
}

func (a *app) kill() bool {
	a.fate.Lock()
	defer a.fate.Unlock()
	if a.die == nil {
		return false
	}
	a.die()
	a.die = nil
	a.turns(Dead)
	return true
}

func (a *app) revive() bool {
	a.fate.Lock()
	defer a.fate.Unlock()
	if a.die != nil || a.back == nil {
		return false
	}
	select {
	case <-a.back:
		return false
	default:
		close(a.back)
		return true
	}
}

// live runs one life, and reports whether it ended by chance.
func (a *app) live(ctx context.Context) (drawn bool) {
	for a.turn(ctx, true) {
		switch a.work(ctx) {
		case Dead:
			return ctx.Err() == nil
		case Resting:
			a.turns(Resting)
			if !a.turn(ctx, false) || !wait.For(ctx, a.about(a.force.cfg.RestFor)) {
				return false
			}
			a.turns(Up)
		}
	}
	return false
}

// turn returns once going online or offline is acknowledged, or false if ctx has ended.
func (a *app) turn(ctx context.Context, online bool) bool {
	if ctx.Err() != nil {
		return false
	}
	what := "offline"
	if online {
		what = "online"
	}
	a.asks(online)
	for {
		answer, err := a.force.client.mitra(ctx, a.id, what)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			a.went(online, answer)
			a.force.count(func(c *Counts) {
				if online {
					c.WentOnline++
				} else {
					c.WentOffline++
				}
			})
			return true
		}
		a.force.failed(err)
		if !wait.For(ctx, a.force.retry) {
			return false
		}
	}
}

// work sends heartbeats until the app has to go online again (Up), rests, or is dead.
func (a *app) work(ctx context.Context) State {
	pause := a.force.cfg.Interval
	for {
		if !wait.For(ctx, pause) {
			return Dead
		}
		switch {
		case a.chance(a.force.cfg.Die):
			return Dead
		case a.chance(a.force.cfg.Rest):
			return Resting
		}
		answer, err := a.force.client.mitra(ctx, a.id, "heartbeat")
		if ctx.Err() != nil {
			return Dead
		}
		pause = a.force.cfg.Interval
		switch refused(err) {
		case http.StatusConflict:
			a.told()
			a.force.count(func(c *Counts) { c.NotOnline++ })
			return Up
		case http.StatusForbidden:
			a.told()
			a.force.count(func(c *Counts) { c.Deactivated++ })
			return Up
		}
		if err != nil {
			a.force.failed(err)
			pause = a.force.retry
			continue
		}
		a.beat(answer)
		a.force.count(func(c *Counts) {
			c.Heartbeats++
			if answer.source == "postgres" {
				c.InPostgres++
			}
			c.Beat.Add(answer.got.Sub(answer.sent))
		})
	}
}
