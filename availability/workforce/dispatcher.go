package workforce

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// mitras requested at once
	offered = 10
	// tries before it gives a session up
	rounds = 20
	// one in so many sessions moves to another mitra
	rerouted = 4
)

// A Session was given to a mitra, as acknowledged.
type Session struct{ Mitra, Status string }

type dispatcher struct {
	force *Force
	id    string // in its tokens

	mu       sync.Mutex
	src      rand.PCG
	sessions map[string]Session
	unsure   map[string]bool // an open request may change it
}

func (d *dispatcher) draw(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return rand.New(&d.src).Int64N(n)
}

func (d *dispatcher) uuid() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return uuid(&d.src)
}

func (d *dispatcher) opens(session string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsure[session] = true
}

func (d *dispatcher) knows(session string, s Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[session] = s
	delete(d.unsure, session)
}

func (d *dispatcher) nothing(session string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.unsure, session)
}

// run returns once no session is in progress.
func (d *dispatcher) run(ctx context.Context) {
	if d.force.cfg.Sessions <= 0 {
		return
	}
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for d.rest(ctx, time.Duration(float64(time.Second)/d.force.cfg.Sessions)) {
		sessions.Go(func() { d.session(ctx, d.uuid()) })
	}
}

// rest reports whether something new may begin after the pause.
func (d *dispatcher) rest(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return !d.force.isQuiet() && ctx.Err() == nil
	case <-d.force.quiet:
		return false
	case <-ctx.Done():
		return false
	}
}

// session finishes what it has begun, even after Quiet.
func (d *dispatcher) session(ctx context.Context, id string) {
	for {
		err := d.force.cfg.Backend.Search(ctx, id)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		d.force.failed(err)
		if !d.rest(ctx, d.force.retry) {
			return
		}
	}
	if !d.place(ctx, id, "accept") {
		return
	}
	half := int64(d.force.cfg.SessionLasts / 2)
	part := func() time.Duration { return time.Duration(half/2 + d.draw(half+1)) }
	if !d.rest(ctx, part()) {
		return
	}
	if d.draw(rerouted) == 0 {
		d.place(ctx, id, "reroute")
	}
	if !d.rest(ctx, part()) {
		return
	}
	d.end(ctx, id)
}

func (d *dispatcher) place(ctx context.Context, id, what string) bool {
	for range rounds {
		ids, a, err := d.force.client.available(ctx, d.id, offered)
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			d.force.failed(err)
		} else {
			d.force.answered(a)
		}
		d.mu.Lock()
		rand.New(&d.src).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		d.mu.Unlock()
		if slices.ContainsFunc(ids, func(mitra string) bool { return d.give(ctx, id, mitra, what) }) {
			return true
		}
		if !d.rest(ctx, d.force.retry) {
			return false
		}
	}
	d.force.count(func(c *Counts) { c.Unserved++ })
	return false
}

func (d *dispatcher) give(ctx context.Context, id, mitra, what string) bool {
	if ctx.Err() != nil {
		return false
	}
	status, unknown := d.ask(ctx, id, what, map[string]string{"mitra_id": mitra})
	switch {
	case status == http.StatusOK:
		d.knows(id, Session{mitra, "active"})
		d.force.count(func(c *Counts) {
			if what == "accept" {
				c.Accepted++
			} else {
				c.Rerouted++
			}
		})
		return true
	case status == 0: // ctx has ended
		return false
	}
	d.force.count(func(c *Counts) { c.Full++ })
	if !unknown {
		d.nothing(id)
		return false
	}
	// An earlier try may have been carried out after all: ask the database.
	for {
		holder, status, err := d.force.cfg.Backend.Session(ctx, id)
		if err == nil {
			d.knows(id, Session{holder, status})
			return holder != "" && (what == "accept" || holder == mitra)
		}
		if !wait.For(ctx, d.force.retry) {
			return false
		}
	}
}

func (d *dispatcher) end(ctx context.Context, id string) {
	how := []string{"completed", "completed", "cancelled", "expired"}[d.draw(4)]
	status, _ := d.ask(ctx, id, "end", map[string]string{"status": how})
	if status != http.StatusOK {
		return // it stays unsure, so Differences never becomes empty
	}
	d.mu.Lock()
	s := d.sessions[id]
	d.mu.Unlock()
	d.knows(id, Session{s.Mitra, how})
	d.force.count(func(c *Counts) { c.Ended++ })
}

// ask sends a request until it gets an answer, or 0 once ctx has ended. unknown means that an
// earlier try may have been carried out.
func (d *dispatcher) ask(
	ctx context.Context, id, what string, body map[string]string,
) (status int, unknown bool) {
	d.opens(id)
	for {
		a, err := d.force.client.session(ctx, d.id, id, what, body)
		unknown = unknown || a.again
		switch {
		case err == nil:
			return http.StatusOK, unknown
		case refused(err) != 0:
			return refused(err), unknown
		case ctx.Err() != nil:
			return 0, true
		}
		unknown = true
		d.force.failed(err)
		if !wait.For(ctx, d.force.retry) {
			return 0, true
		}
	}
}
