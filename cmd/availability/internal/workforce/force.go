// Package workforce simulates mitras, a dispatcher and customers, who send requests to replicas of
// the program availability over HTTP. Its mitras and sessions it inserts into the database itself.
//
// An app goes online, sends a heartbeat each interval, and goes online again after a refusal. Now
// and then it logs off for a rest, or dies without a goodbye and comes back. Requests without an
// answer are sent again, to another replica. The dispatcher gives each session to an available
// mitra, moves some, and ends them. Customers poll whether anybody is available.
//
// Each app keeps what was acknowledged to it, and when: both stores have to agree with that.
package workforce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	mostRetry = time.Second // pause before a retry, at most
	offered   = 10          // mitras that the dispatcher asks for at once
	rounds    = 20          // in which it looks for one who has room
	rerouted  = 0.25        // share of sessions that move
	restFor   = 5           // intervals
)

// Config configures a workforce. All is required but the rates, the shares and the seed.
type Config struct {
	Mitras   int
	Targets  []string // replicas, as http://host:port, used in turn
	Secret   []byte   // signs tokens, by HS256
	DB       *pgxpool.Pool
	Interval time.Duration // between two heartbeats of an app

	Sessions     float64 // that begin in a second
	SessionLasts time.Duration
	Polls        float64 // in a second

	Rest, Die float64 // share of heartbeats in whose place an app rests, or dies
	DeadFor   time.Duration
	Seed      uint64
}

// Force is a simulated workforce. Its methods are safe for concurrent use.
type Force struct {
	cfg    Config
	client *client
	apps   []*app
	retry  time.Duration
	quiet  atomic.Bool
	counter
}

// New returns a workforce that has not started.
func New(cfg Config) *Force {
	f := &Force{cfg: cfg, client: newClient(cfg.Secret), retry: min(cfg.Interval/4, mostRetry)}
	f.now.Answers = map[string]int{}
	f.SetTargets(cfg.Targets...)
	for i := range cfg.Mitras {
		src := rand.New(rand.NewPCG(cfg.Seed, uint64(i)))
		f.apps = append(f.apps, &app{force: f, src: src, id: uuid(src)})
	}
	return f
}

func uuid(src rand.Source) string {
	a, b := src.Uint64(), src.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
		a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>48&0x3fff, b&0xffffffffffff)
}

// about returns half to one and a half of d.
func about(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

// SetTargets changes where requests go.
func (f *Force) SetTargets(targets ...string) { f.client.targets.Store(&targets) }

func (f *Force) ids() []string {
	ids := make([]string, len(f.apps))
	for i, a := range f.apps {
		ids[i] = a.id
	}
	return ids
}

// Run inserts the mitras and runs them until ctx ends, once. It leaves no goroutine.
func (f *Force) Run(ctx context.Context) {
	defer f.client.http.CloseIdleConnections()
	for !f.inserts(ctx, `INSERT INTO mitras (id, is_active)
		SELECT id::uuid, true FROM unnest($1::text[]) id ORDER BY id ON CONFLICT (id) DO NOTHING`, f.ids()) {
		if !wait.For(ctx, f.retry) {
			return
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, a := range f.apps {
		running.Go(func() { a.run(ctx) })
	}
	running.Go(func() { f.each(ctx, f.cfg.Sessions, f.session) })
	running.Go(func() { f.each(ctx, f.cfg.Polls, f.poll) })
}

func (f *Force) inserts(ctx context.Context, sql string, args ...any) bool {
	_, err := f.cfg.DB.Exec(ctx, sql, args...)
	if err != nil && ctx.Err() == nil {
		f.failed(fmt.Errorf("workforce: insert: %w", err))
	}
	return err == nil
}

func (f *Force) each(ctx context.Context, rate float64, do func(context.Context)) {
	if rate <= 0 {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for wait.For(ctx, time.Duration(float64(time.Second)/rate)) {
		running.Go(func() { do(ctx) })
	}
}

// Quiet begins no further session and ends none; nobody rests or dies by chance any more.
func (f *Force) Quiet() { f.quiet.Store(true) }

// Kill ends up to n apps that know they are online, without a goodbye, and returns them.
func (f *Force) Kill(n int) (killed []string) {
	for _, i := range rand.Perm(len(f.apps)) {
		if len(killed) < n && f.apps[i].turns(Up, Dead) {
			killed = append(killed, f.apps[i].id)
		}
	}
	return killed
}

// Revive brings all dead apps back, and returns how many.
func (f *Force) Revive() (n int) {
	for _, a := range f.apps {
		if a.turns(Dead, Up) {
			n++
		}
	}
	return n
}

func (f *Force) poll(ctx context.Context) {
	a, err := f.client.do(ctx, identity{uuid(rand.New(rand.NewPCG(rand.Uint64(), 0))), "customer"},
		http.MethodGet, "availability", nil, nil)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.failed(err)
	default:
		f.count(func(c *Counts) { c.Answers[a.source]++ })
	}
}

func (f *Force) session(ctx context.Context) {
	d := uuid(rand.New(rand.NewPCG(rand.Uint64(), 0)))
	if f.quiet.Load() || !f.inserts(ctx, `INSERT INTO chat_sessions (id, status) VALUES ($1, 'searching')`, d) ||
		!f.place(ctx, d, "accept") {
		return
	}
	f.count(func(c *Counts) { c.Accepted++ })
	if !wait.For(ctx, about(f.cfg.SessionLasts/2)) || f.quiet.Load() {
		return
	}
	if rand.Float64() < rerouted && f.place(ctx, d, "reroute") {
		f.count(func(c *Counts) { c.Rerouted++ })
	}
	if !wait.For(ctx, about(f.cfg.SessionLasts/2)) || f.quiet.Load() {
		return
	}
	how := []string{"completed", "cancelled", "expired"}[rand.N(3)]
	if f.ask(ctx, d, http.MethodPost, "sessions/"+d+"/end", map[string]string{"status": how}, nil) {
		f.count(func(c *Counts) { c.Ended++ })
	}
}

func (f *Force) place(ctx context.Context, session, what string) bool {
	for range rounds {
		var found []struct {
			ID string `json:"id"`
		}
		f.ask(ctx, session, http.MethodGet, fmt.Sprintf("available?limit=%d", offered), nil, &found)
		rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
		for _, mitra := range found {
			if f.ask(ctx, session, http.MethodPost, "sessions/"+session+"/"+what, map[string]string{"mitra_id": mitra.ID}, nil) {
				return true
			}
		}
		if f.quiet.Load() || !wait.For(ctx, f.retry) {
			return false
		}
	}
	return false
}

// ask sends a dispatcher's request until it is answered, and reports whether it was granted. To
// send it again does no harm.
func (f *Force) ask(ctx context.Context, dispatcher, method, path string, body, into any) bool {
	for {
		a, err := f.client.do(ctx, identity{dispatcher, "service"}, method, path, body, into)
		switch {
		case ctx.Err() != nil, refused(err) != 0:
			return false
		case err == nil:
			if into != nil {
				f.count(func(c *Counts) { c.Answers[a.source]++ })
			}
			return true
		}
		f.failed(err)
		if !wait.For(ctx, f.retry) {
			return false
		}
	}
}

// State is what an app is doing.
type State int

// States of an app.
const (
	Up      State = iota // online or about to be, and sends heartbeats
	Resting              // offline, or about to be
	Dead
)

// A call was acknowledged, between two moments. Only one to go offline is kept before that.
type call struct {
	sent, got time.Time // got is zero before
	offline   bool
}

type app struct {
	force *Force
	id    string
	src   *rand.Rand // of run's goroutine

	mu     sync.Mutex
	state  State
	until  time.Time // of a rest or death by chance; zero: until Revive
	online bool      // as last acknowledged
	calls  []call
}

// turns changes the state of an app that is at rest in another.
func (a *app) turns(from, to State) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != from || from == Up && !a.online {
		return false
	}
	a.state, a.until = to, time.Time{}
	return true
}

func (a *app) run(ctx context.Context) {
	for pause := rand.N(min(a.force.cfg.Interval, 10*time.Second) + 1); wait.For(ctx, pause); {
		pause = a.step(ctx)
	}
}

// step returns the pause before the next.
func (a *app) step(ctx context.Context) time.Duration {
	f, what := a.force, a.next()
	if what == "" {
		return f.retry
	}
	got, err := f.client.do(ctx, identity{a.id, "mitra"}, http.MethodPost, "mitra/"+what, nil, nil)
	if ctx.Err() != nil {
		return 0
	}
	if status := refused(err); status == http.StatusConflict || status == http.StatusForbidden {
		a.mu.Lock()
		a.online = false
		a.mu.Unlock()
		f.count(func(c *Counts) { c.NotOnline++ })
		return f.retry
	}
	if err != nil {
		f.failed(err)
		return f.retry
	}
	a.acknowledged(what, got)
	f.count(func(c *Counts) {
		switch what {
		case "online":
			c.WentOnline++
		case "offline":
		default:
			c.Heartbeats++
			c.Beat.Add(got.got.Sub(got.sent))
			if got.source == "postgres" {
				c.InPostgres++
			}
		}
	})
	return f.cfg.Interval
}

// next returns the next request, or "" if none is due.
func (a *app) next() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, now := &a.force.cfg, time.Now()
	if !a.until.IsZero() && now.After(a.until) && !(a.state == Resting && a.online) {
		a.state, a.until = Up, time.Time{}
	}
	if a.state == Up && a.online && !a.force.quiet.Load() {
		switch p := a.src.Float64(); {
		case p < c.Die:
			a.state, a.until = Dead, now.Add(about(c.DeadFor))
		case p < c.Die+c.Rest:
			a.state, a.until = Resting, now.Add(about(restFor*c.Interval))
			a.calls = append(a.calls, call{sent: now, offline: true})
		}
	}
	switch {
	case a.state == Dead || a.state == Resting && !a.online:
		return ""
	case a.state == Resting:
		return "offline"
	case a.online:
		return "heartbeat"
	}
	return "online"
}

func (a *app) acknowledged(what string, got answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.online = what != "offline"
	if a.online {
		a.calls = append(a.calls, call{got.sent, got.got, false})
	} else {
		a.calls[len(a.calls)-1].got = got.got
	}
}

// Expected returns whether each app has to be online once everything is at rest, unless some have
// no answer yet.
func (f *Force) Expected() (online map[string]bool, settled bool) {
	online, settled = map[string]bool{}, true
	for _, a := range f.apps {
		a.mu.Lock()
		up := a.state == Up
		settled = settled && (a.state == Dead || a.online == up)
		a.mu.Unlock()
		online[a.id] = up
	}
	return online, settled
}

// SilentFor is [app.silentFor] of an app; false for an unknown one.
func (f *Force) SilentFor(id string, at time.Time) (silent time.Duration, known bool) {
	for _, a := range f.apps {
		if a.id == id {
			return a.silentFor(at)
		}
	}
	return 0, false
}

// silentFor returns how long before at the last sign of life was sent that had been acknowledged by
// then; false if there was none, or the app itself may have gone offline then.
func (a *app) silentFor(at time.Time) (silent time.Duration, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range slices.Backward(a.calls) {
		over := !c.got.IsZero() && !c.got.After(at)
		if c.offline && !over && !c.sent.After(at) {
			return 0, false
		}
		if !c.offline && over && !known {
			silent, known = at.Sub(c.sent), true
		}
	}
	return silent, known
}
