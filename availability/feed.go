package availability

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// repairAgain is the pause between two tries to put the source's states right.
const repairAgain = time.Second

// feed is what keeps the mirror: it belongs to follow's goroutine. It waits for nobody's settings,
// and for no connection that callers use.
type feed struct {
	*Mirror
	cursor  Cursor
	life    *[2]string // the last that was read, and on which connection; nil: none was
	reading bool       // the last read went well: the cursor is of now
	// newSince is the server's time, as heartbeats have it: a seeding that began before is too old.
	// "": it has to be asked for.
	newSince string
	untrue   string   // time of a seeding that proves nothing
	left     []string // keys that fit left alone
	compared bool     // Redis has what the source had when its life, or the connection, began
	away     bool     // Redis did not answer the last look
	sawWhole bool     // the mirror was whole on this connection to Redis
}

// connected notes that the connection to Redis began anew: it may lead to another server.
func (f *feed) connected() { f.newSince, f.sawWhole = "", false }

// failed notes a call to Redis that failed. Without an answer the server may be another one.
func (f *feed) failed(err error) {
	f.newSince, f.away = "", true
	if !together.Answered(err) {
		f.connected()
	}
}

// follow keeps the mirror until ctx ends: a look at each tick, and at once when a connection began
// anew.
func (m *Mirror) follow(ctx context.Context) {
	f := &feed{Mirror: m}
	m.upToDate(time.Now()) // it has a moment for its first look
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

// look reads what is new, brings it to Redis, and seeds if the mirror is not whole. The cursor
// moves only when all of it has arrived.
func (f *feed) look(ctx context.Context) error {
	begun := time.Now()
	if f.away { // else all that changes meanwhile is read at each look
		if _, err := f.askTime(ctx); err != nil {
			return errors.Join(err, f.readLife(ctx))
		}
	}
	// Before the seeding: what changes during it is read behind it.
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
	// A connection whose other end vanished is given up soon: the source may have another life, and
	// others write to it. More than can be read by then is compared page by page.
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
	if f.cursor == (Cursor{}) { // what changed before is in a seeding of after
		f.newSince = ""
	}
	f.cursor, f.reading = next, true
	f.note(func(h *Health) { h.FeedAt = time.Now() })
	return nil
}

// readLife reads nothing but the source's life: its states are repaired whether or not Redis
// answers, since meanwhile they are what reads return.
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

// lives notes the source's life. Another one may have lost commits that Redis still has, or its
// states may not match its tables.
func (f *feed) lives(next Cursor) {
	life := [2]string{next.Life, next.Connection}
	if f.life != nil && life != *f.life {
		f.log.Warn("the source has another life: everything is compared")
		f.newSince = ""
		f.otherLife()
		nudge(f.repairs)
	}
	f.life = &life
}

// askTime asks the server that has the mirror for its time.
func (f *feed) askTime(ctx context.Context) (time.Time, error) {
	short, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	begun := time.Now()
	at, err := f.clock(short)
	if err != nil {
		f.failed(err)
		return at, fmt.Errorf("availability: ask for the time: %w", err)
	}
	f.away = false
	f.clocks.mirrorSaid(begun, at)
	return at, nil
}

// check seeds the mirror if it is not whole, or if it was seeded before the connection began.
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
		// One of a time to come, before the server's clock went back, tells nothing: now or later.
		if f.untrue = ""; at > f.newSince {
			f.untrue = at
		}
	}
	if at == f.untrue {
		at = ""
	}
	f.looked(at != "")
	if at < f.newSince {
		// What changes during the seeding would be missed; and a source that has no feed may be a standby
		// whose states are old.
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
	if at < f.newSince { // the server's clock went back; or somebody else seeds
		f.newSince = ""
		return nil
	}
	f.compared, f.sawWhole = true, true
	f.begun()
	return nil
}

// seededAt returns the time of the current seeding, or "" if there is none. It also stores when
// heartbeats were last copied to the source, unless that time is implausible.
func (f *feed) seededAt(ctx context.Context, now time.Time) (string, error) {
	short, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	pipe := f.rdb.Pipeline()
	seeded, brought := pipe.Get(short, f.keys.seeded()), pipe.HGet(short, f.keys.breaker(), heartbeatsAt)
	_, _ = pipe.Exec(short) // each has its error
	at, err := seeded.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.failed(err)
		return "", fmt.Errorf("availability: is the mirror whole: %w", err)
	}
	if ms, err := brought.Int64(); err == nil && time.UnixMilli(ms).Before(now.Add(heartbeatAhead)) {
		f.broughtAt(time.UnixMilli(ms))
	}
	return at, nil
}

// looked notes whether the mirror is whole.
func (m *Mirror) looked(whole bool) {
	m.note(func(h *Health) { h.Whole, h.LookedAt = whole, time.Now() })
}

// broughtAt notes when heartbeats were last brought to the source.
func (m *Mirror) broughtAt(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.brought = at
}

// begun closes ready, once. Only follow's goroutine calls it.
func (m *Mirror) begun() {
	select {
	case <-m.ready:
	default:
		close(m.ready)
	}
}

// upToDate notes that Redis has everything that the source had committed by then; zero: nobody
// follows it.
func (m *Mirror) upToDate(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.upTo, m.uncompared = at, false
}

// otherLife notes that Redis may be ahead of the source, until all is compared.
func (m *Mirror) otherLife() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uncompared = true
}

// behind is for how long Redis may have missed what the source committed; 0: it has all of it, but
// for what a look takes.
func (m *Mirror) behind() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.upTo.IsZero() {
		return 0
	}
	since := time.Since(m.upTo)
	if m.uncompared || since > max(m.patience, 4*m.c.Tick) {
		return max(since, 1)
	}
	return 0
}

// keepRepaired has the source's states put right after each beginning of another life: a restore,
// or a TRUNCATE that no trigger saw, leaves them wrong. The feed does not wait for it, and brings
// what it changed.
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
			nudge(m.repairs)
			if !wait.For(ctx, repairAgain) {
				return
			}
		}
	}
}
