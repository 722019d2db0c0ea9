package availability

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// feed is what keeps the mirror: it belongs to follow's goroutine.
type feed struct {
	*Mirror
	cursor  Cursor
	reading bool // the last read went well: the cursor is of now
	// newSince is the server's time, as heartbeats have it: a seeding that began before is too old.
	// "": it has to be asked for.
	newSince   string
	untrue     string   // the seeding that tells nothing, by its time
	left       []string // keys that fit left alone
	settingsAt time.Time
}

// follow keeps the mirror until ctx ends: a look at each tick, and at once when a connection began
// anew.
func (m *Mirror) follow(ctx context.Context) {
	f := &feed{Mirror: m}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.reconnected:
			f.newSince = ""
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
	if time.Since(f.settingsAt) > settingsFresh {
		if _, err := f.readSettings(ctx); err == nil || errors.Is(err, ErrSetting) {
			f.settingsAt = time.Now()
		}
	}
	// Before the seeding: what changes during it is read behind it.
	feedErr := f.read(ctx)
	if err := f.check(ctx); err != nil {
		return errors.Join(feedErr, err)
	}
	return feedErr
}

func (f *feed) read(ctx context.Context) error {
	f.reading = false
	states, next, err := f.source.Feed(ctx, f.cursor)
	if err != nil {
		return fmt.Errorf("availability: feed: %w", err)
	}
	brought, err := f.apply(ctx, newer, states...)
	f.metrics.fed.Add(float64(len(brought)))
	if err != nil {
		f.newSince = "" // the server may be another
		return err
	}
	if f.cursor == (Cursor{}) { // what changed before is in a seeding of after
		f.newSince = ""
	} else if next.Life != f.cursor.Life {
		// Another server of the source may have lost commits, whose states stand in Redis.
		f.log.Warn("the source is another server: everything is compared")
		f.newSince = ""
	}
	f.cursor, f.reading = next, true
	f.note(func(h *Health) { h.FeedAt = time.Now() })
	return nil
}

// check seeds the mirror if it is not whole, or if it was seeded before the connection began.
func (f *feed) check(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	if err := f.fit(short); errors.Is(err, errKept) {
		f.looked(false)
		return err
	} else if err != nil {
		f.newSince = ""
		return err
	}
	begins := f.newSince == ""
	if begins {
		at, err := f.clock(short)
		if err != nil {
			return fmt.Errorf("availability: ask for the time: %w", err)
		}
		f.newSince = formatSeen(at)
	}
	pipe := f.rdb.Pipeline()
	seeded, brought := pipe.Get(short, f.keys.seeded()), pipe.HGet(short, f.keys.breaker(), heartbeatsAt)
	_, _ = pipe.Exec(short) // each has its error
	at, err := seeded.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.newSince = ""
		return fmt.Errorf("availability: is the mirror whole: %w", err)
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
	if ms, err := brought.Int64(); err == nil && time.UnixMilli(ms).Before(time.Now().Add(heartbeatAhead)) {
		f.broughtAt(time.UnixMilli(ms))
	}
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
	f.begun()
	return nil
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
