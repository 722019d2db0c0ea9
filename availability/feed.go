package availability

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	repairAgain = time.Second
	// feedLease is how long a feeder is waited for that died.
	feedLease = 3 * time.Second
	// marksMost limits the marks of calls without an answer.
	marksMost = 1000
)

// Steps and roles of feed.lua.
const (
	take    = "take"
	clearUp = "clear"
	report  = "report"
	certify = "certify"
	release = "release"
	doubt   = "doubt"

	roleSame  = "same"
	roleAnew  = "anew"
	roleUnfit = "unfit"
)

var errFeed = errors.New("availability: feed")

var errEmptied = errors.New("availability: Redis was emptied or set back while it was compared, or that took too long")

// feed belongs to follow's goroutine. Every replica looks at each tick; the one that holds the
// lease brings what changes, for all. It waits for nobody's settings, and shares no connection with
// callers.
type feed struct {
	*Mirror
	name  string
	marks []string // those that Redis may have
	data  string   // the life of Redis' data; "" before the first answer

	feeding  bool
	anew     bool // everything has to be compared
	cursor   Cursor
	life     *[2]string // the source's last life and connection; nil before the first read
	whole    bool       // as of the last answer
	unfit    bool       // Redis has no place for a lease
	sawWhole bool       // on this server
	left     []string   // keys that fit left alone
	rests    time.Time  // until then another replica may feed, as this one cannot
	doubts   bool       // a connection to Redis ended, or a writer met lost commits
}

func newFeed(m *Mirror) *feed { return &feed{Mirror: m, name: rand.Text(), anew: true} }

// follow looks at each tick and after a reconnect.
func (m *Mirror) follow(ctx context.Context) {
	f := newFeed(m)
	m.upToDate(time.Now()) // time for the first look
	defer m.upToDate(time.Time{})
	defer f.leave(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.reconnected:
			f.doubts, f.sawWhole = true, false
		}
		err := f.look(ctx)
		if ctx.Err() != nil {
			return
		}
		m.feeding.Note(err)
		m.note(func(h *Health) { h.FeedError = textOf(err) })
		timer.Reset(m.c.Tick)
	}
}

// look moves the cursor only once everything has arrived.
func (f *feed) look(ctx context.Context) error {
	begun := time.Now()
	if err := f.turn(ctx); err != nil {
		return errors.Join(err, f.readLife(ctx))
	}
	if !f.feeding {
		return nil
	}
	// Read before comparing: the next look reads what changes during it.
	if err := f.read(ctx); err != nil {
		if errors.Is(err, errFeed) { // another replica may read it
			f.leave(ctx)
			f.rests = time.Now().Add(2 * f.c.Tick)
		}
		return err
	}
	if f.anew || !f.whole {
		if err := f.seed(ctx); err != nil {
			return err
		}
	}
	return f.tell(ctx, report, begun)
}

// turn finds out whether this replica feeds now.
func (f *feed) turn(ctx context.Context) error {
	step := take
	if time.Now().Before(f.rests) {
		step = release
	}
	tell := func() (err error) {
		if f.doubts {
			err = f.tell(ctx, doubt, time.Time{})
			f.doubts = err != nil
		}
		if err == nil {
			err = f.tell(ctx, step, time.Time{})
		}
		return err
	}
	if err := tell(); err != nil {
		return err
	}
	if err := f.fit(ctx); err != nil || !f.unfit {
		return err
	}
	return tell()
}

// leave lets another replica feed.
func (f *feed) leave(ctx context.Context) {
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.patience)
	defer cancel()
	if f.feeding {
		_ = f.tell(short, release, time.Time{}) // otherwise the lease expires
	}
}

// tell calls feed.lua once, and takes over from its answer what other replicas have found. begun is
// when a look began that brought everything.
func (f *feed) tell(ctx context.Context, step string, begun time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	sent, mark := time.Now(), rand.Text()
	args := []any{
		step, f.name, feedLease.Milliseconds(), mark, max(0, sent.Sub(begun).Milliseconds()), f.clocks.measured(), f.data,
	}
	for _, m := range f.marks {
		args = append(args, m)
	}
	keys := []string{f.keys.fed(), f.keys.seeded(), f.keys.noted()}
	out, err := feedScript.Run(ctx, f.rdb, keys, args...).StringSlice()
	if err == nil && len(out) != 9 {
		err = fmt.Errorf("unexpected answer %q", out)
	}
	if err != nil {
		f.marks = append(f.marks[:min(len(f.marks), marksMost)], mark) // it may have been left
		return fmt.Errorf("availability: whose turn to feed: %w", err)
	}
	now, err := timeOf(out)
	if err != nil {
		return err
	}
	f.clocks.mirror.Learn(sent, now)
	f.clocks.compare()
	f.turned(out[2], mark)
	f.sawWhole = f.sawWhole && f.data == out[3]
	f.data, f.whole, f.unfit = out[3], out[4] == "1", out[2] == roleUnfit
	f.sawWhole = f.sawWhole || f.whole
	if !f.feeding {
		f.clocks.adopt(out[6])
	}
	f.heard(sent, now, out)
	return nil
}

func (f *feed) turned(role, mark string) {
	before := f.feeding
	switch f.feeding = role == roleSame || role == roleAnew; {
	case !f.feeding:
		f.cursor, f.life, f.anew = Cursor{}, nil, true
		return
	case role == roleAnew && before:
		f.log.Warn("Redis has another life, or was set back, or may have missed something: everything is compared")
		f.anew = true
	case role == roleAnew:
		f.anew = true
	}
	f.marks = []string{mark}
}

// heard takes what all replicas go by. However late the answer, it is as of when it was asked for.
func (f *feed) heard(sent, now time.Time, out []string) {
	if ms, err := strconv.ParseInt(out[7], 10, 64); err == nil && time.UnixMilli(ms).Before(now.Add(heartbeatAhead)) {
		f.broughtAt(time.UnixMilli(ms))
	}
	if ms, err := strconv.ParseInt(out[8], 10, 64); err == nil && !time.UnixMilli(ms).After(now) {
		f.freeFor(now.Sub(time.UnixMilli(ms)))
	}
	ago, err := strconv.ParseInt(out[5], 10, 64)
	f.mu.Lock()
	f.health.Whole, f.health.LookedAt = f.whole, time.Now()
	f.uncompared = err != nil
	if err == nil {
		f.health.FeedAt = sent.Add(-time.Duration(ago) * time.Millisecond)
		if !f.upTo.IsZero() {
			f.upTo = f.health.FeedAt
		}
	}
	f.mu.Unlock()
	if f.whole && err == nil && f.behind() == 0 {
		f.begun()
	}
}

func (f *feed) read(ctx context.Context) error {
	// Give up soon on a connection whose peer vanished: others may write to another life. A larger
	// backlog is compared page by page.
	short, cancel := context.WithTimeout(ctx, 2*f.patience)
	defer cancel()
	states, next, err := f.source.Feed(short, f.cursor)
	if err != nil {
		return fmt.Errorf("%w: %w", errFeed, err)
	}
	f.clocks.compare()
	if f.lives(next) {
		if err := f.tell(ctx, clearUp, time.Time{}); err != nil {
			return err
		}
	}
	brought, err := f.reconciliation(newer, directly).deliver(ctx, newer, states)
	f.metrics.fed.Add(float64(brought))
	if err == nil {
		f.cursor = next
	}
	return err
}

// readLife is for repairs while Redis does not answer: then reads return those states, and nobody
// knows who feeds.
func (f *feed) readLife(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 2*f.patience)
	defer cancel()
	_, next, err := f.source.Feed(short, Cursor{})
	if err != nil {
		return fmt.Errorf("availability: feed: %w", err)
	}
	f.lives(next)
	return nil
}

// lives notes a new life: it may lack commits that Redis has, or its states may not match its
// tables.
func (f *feed) lives(next Cursor) (another bool) {
	life := [2]string{next.Life, next.Connection}
	if another = f.life != nil && life != *f.life; another {
		f.log.Warn("the source has another life: everything is compared")
		f.anew = true
	}
	if another || f.life == nil { // it may be another than before
		wait.Nudge(f.repairs)
	}
	f.life = &life
	return another
}

// seed makes the mirror whole. An empty server is the simplest case of a reconciliation. If
// somebody empties the server, or sets it back, meanwhile, the lease's mark is lost with everything
// else, so half a seeding never passes for a whole one.
func (f *feed) seed(ctx context.Context) error {
	begun := time.Now()
	kept := begun
	f.anew = false
	r := f.reconciliation(heal, func(ctx context.Context, call func(context.Context) error) error {
		if time.Since(kept) >= feedLease/6 {
			kept = time.Now()
			if err := f.still(ctx, take, begun); err != nil {
				return err
			}
		}
		return call(ctx)
	})
	err := r.run(ctx)
	if err == nil {
		err = f.still(ctx, certify, begun)
	}
	if err != nil {
		f.anew = true
		return err
	}
	f.metrics.seeds.Inc()
	f.log.Info("mirror seeded", "states", r.states, "seconds", time.Since(begun).Seconds(), "found", r.found)
	return nil
}

// still keeps the lease, unless the mirror is not what it was.
func (f *feed) still(ctx context.Context, step string, begun time.Time) error {
	if err := f.tell(ctx, step, begun); err != nil {
		return err
	}
	if f.anew || !f.feeding {
		return errEmptied
	}
	return nil
}

func (m *Mirror) broughtAt(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.brought = at
}

// freeFor notes for how long heartbeats have been required at most, as a replica that began
// afterwards did not see it: the leader noted ago that they were not, as it does each
// OfflineInterval.
func (m *Mirror) freeFor(ago time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = time.Now().Add(m.c.OfflineInterval - ago)
}

// begun is only for follow's goroutine.
func (m *Mirror) begun() {
	select {
	case <-m.ready:
	default:
		close(m.ready)
	}
}

// upToDate notes that Redis has all that the source had committed by then; zero: nobody follows the
// source.
func (m *Mirror) upToDate(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.upTo, m.uncompared = at, false
}

// behind returns how long Redis may have missed commits; zero: it has all but the current look's.
func (m *Mirror) behind() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.upTo.IsZero() {
		return 0
	}
	since := wait.Age(m.upTo, time.Now())
	if m.uncompared || since > max(m.patience, 4*m.c.Tick) {
		return max(since, 1)
	}
	return 0
}

// keepRepaired repairs the source's states after each start of another life: a restore, or a
// TRUNCATE that no trigger saw, leaves them wrong. The feed does not wait for it.
func (m *Mirror) keepRepaired(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.repairs:
		}
		if err := m.reconciliation(compare, directly).repair(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("states are not repaired: it is tried again", "error", err)
			wait.Nudge(m.repairs)
			if !wait.For(ctx, repairAgain) {
				return
			}
		}
	}
}
