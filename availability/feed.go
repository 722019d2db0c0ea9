package availability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const repairAgain = time.Second

// feed belongs to follow's goroutine. It waits for nobody's settings, and shares no connection with
// callers.
type feed struct {
	*Mirror
	cursor  Cursor
	life    *[2]string // last life and connection; nil before the first read
	reading bool
	// the server's time, formatted like a heartbeat, before which a seeding is too old; "" until asked
	newSince string
	untrue   string   // time of a seeding that proves nothing
	left     []string // keys that fit left alone
	compared bool     // Redis has what the source had when its life, or the connection, began
	away     bool     // Redis did not answer the last look
	sawWhole bool     // on this connection to Redis
	server   string   // the life of Redis' server; "" if it is not known
}

func (f *feed) connected() { f.newSince, f.sawWhole = "", false }

// failed notes that without an answer, the server may be a different one.
func (f *feed) failed(err error) {
	f.newSince, f.away = "", true
	if !together.Answered(err) {
		f.connected()
	}
}

// follow looks at each tick and after a reconnect.
func (m *Mirror) follow(ctx context.Context) {
	f := &feed{Mirror: m, away: true} // the clocks are compared before the first states are applied
	m.upToDate(time.Now())            // time for the first look
	defer m.upToDate(time.Time{})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.reconnected:
			f.connected()
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
	if f.away { // otherwise each look would read everything that changes meanwhile
		if _, err := f.askTime(ctx); err != nil {
			return errors.Join(err, f.readLife(ctx))
		}
	}
	// Read before seeding: the next look reads what changes during it.
	feedErr := f.read(ctx)
	if err := f.check(ctx); err != nil {
		return errors.Join(feedErr, err)
	}
	if feedErr == nil && f.compared {
		f.upToDate(begun)
	}
	return feedErr
}

func (f *feed) read(ctx context.Context) error {
	f.reading = false
	// Give up soon on a connection whose peer vanished: others may write to another life. A larger
	// backlog is compared page by page.
	short, cancel := context.WithTimeout(ctx, 2*f.patience)
	defer cancel()
	begun := time.Now()
	states, next, err := f.source.Feed(short, f.cursor)
	if err != nil {
		if short.Err() != nil {
			f.cursor, f.newSince = Cursor{}, ""
		}
		return fmt.Errorf("availability: feed: %w", err)
	}
	f.clocks.sourceSaid(begun, next.At)
	f.lives(next)
	brought, err := f.deliver(ctx, states...)
	f.metrics.fed.Add(float64(brought))
	if err != nil {
		f.failed(err)
		return err
	}
	if f.cursor == (Cursor{}) { // only a seeding from now on contains earlier changes
		f.newSince = ""
	}
	f.cursor, f.reading = next, true
	f.note(func(h *Health) { h.FeedAt = time.Now() })
	return nil
}

// readLife is for repairs while Redis does not answer: reads return those states.
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
func (f *feed) lives(next Cursor) {
	life := [2]string{next.Life, next.Connection}
	if f.life != nil && life != *f.life {
		f.log.Warn("the source has another life: everything is compared")
		f.newSince = ""
		f.otherLife()
		wait.Nudge(f.repairs)
	}
	f.life = &life
}

func (f *feed) askTime(ctx context.Context) (time.Time, error) {
	short, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	begun := time.Now()
	at, server, err := f.clock(short)
	if err != nil {
		f.failed(err)
		return at, fmt.Errorf("availability: ask for the time: %w", err)
	}
	f.away = false
	// The client renews a connection that ended between two calls without a word. A server that was
	// restarted, or promoted, has what it had at some earlier time.
	if f.server != "" && server != f.server {
		f.connected()
	}
	f.server = server
	f.clocks.mirrorSaid(begun, at)
	return at, nil
}

// check seeds the mirror if it is not whole, or was seeded before the connection began.
func (f *feed) check(ctx context.Context) error {
	f.compared = false
	now, err := f.askTime(ctx)
	if err != nil {
		return err
	}
	if err := f.fit(ctx); err != nil {
		return err
	}
	begins := f.newSince == ""
	if begins {
		f.newSince = formatSeen(now)
	}
	at, err := f.seededAt(ctx, now)
	if err != nil {
		return err
	}
	if begins {
		// A seeding in the future predates a step back of the server's clock. It never proves anything.
		if f.untrue = ""; at > f.newSince {
			f.untrue = at
		}
	}
	if at == f.untrue {
		at = ""
	}
	f.looked(at != "")
	if at < f.newSince {
		// Changes during the seeding would be missed. A source whose feed fails may also be a standby
		// with old states.
		if !f.reading {
			return nil
		}
		at, err = f.seed(ctx)
		if errors.Is(err, errOtherSeeds) {
			return nil
		}
		if err != nil {
			return err
		}
		f.looked(true)
	}
	if at < f.newSince { // the server's clock went back, or another replica seeds
		f.newSince = ""
		return nil
	}
	f.compared, f.sawWhole = true, true
	f.begun()
	return nil
}

// seededAt returns the time of the current seeding, or "". It also stores when heartbeats were last
// copied to the source, and when they were last not required, unless implausible.
func (f *feed) seededAt(ctx context.Context, now time.Time) (string, error) {
	short, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	pipe := f.rdb.Pipeline()
	seeded, brought := pipe.Get(short, f.keys.seeded()), pipe.HGet(short, f.keys.breaker(), heartbeatsAt)
	free := pipe.HGet(short, f.keys.breaker(), notRequired)
	err := together.Exec(short, pipe)
	at := seeded.Val()
	if err = cmp.Or(err, seeded.Err()); err != nil && !errors.Is(err, redis.Nil) {
		f.failed(err)
		return "", fmt.Errorf("availability: is the mirror whole: %w", err)
	}
	if ms, err := brought.Int64(); err == nil && time.UnixMilli(ms).Before(now.Add(heartbeatAhead)) {
		f.broughtAt(time.UnixMilli(ms))
	}
	if ms, err := free.Int64(); err == nil && !time.UnixMilli(ms).After(now) {
		f.freeFor(now.Sub(time.UnixMilli(ms)))
	}
	return at, nil
}

func (m *Mirror) looked(whole bool) {
	m.note(func(h *Health) { h.Whole, h.LookedAt = whole, time.Now() })
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
	if at := time.Now().Add(m.c.OfflineInterval - ago); at.After(m.required) {
		m.required = at
	}
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

func (m *Mirror) otherLife() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uncompared = true
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
		found := map[string]int{}
		if _, err := m.repair(ctx, found); err != nil && ctx.Err() == nil {
			m.log.Warn("states are not repaired: it is tried again", "error", err)
			wait.Nudge(m.repairs)
			if !wait.For(ctx, repairAgain) {
				return
			}
		}
	}
}
