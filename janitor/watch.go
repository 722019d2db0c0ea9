package janitor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
)

// lookFresh is for how long a look at the roster is good, unless it saw a heartbeat that ends
// before. It is refreshed in the middle of a long pass too, since the breaker must see who falls
// meanwhile.
const lookFresh = time.Second

// watch looks at the owners on behalf of a term: at the roster and its heartbeats, at most once a
// second, and feeds the breaker with that and with whatever else sweeps learn about owners.
type watch struct {
	j     *Janitor
	guard *guard.Guard
	lease guard.Lease

	mu       sync.Mutex // held during a look: who comes meanwhile wants the same one
	looked   time.Time
	full     time.Time // the last look that asked each heartbeat for the rest of its life
	quiet    bool      // which found everybody alive and none late
	expires  time.Time // when the next heartbeat ends if it is not refreshed; zero: none does
	roster   map[string]Liveness
	mistyped bool                 // the roster is of another type, and the log says so
	silent   map[string]time.Time // those on it that are dead, and the first look that found each so
	breaker  *breaker
	checked  time.Time // when the breaker was last found not to be allowed again yet
}

func newWatch(j *Janitor, l guard.Lease) *watch {
	timing := j.cfg.Registry.Timing()
	return &watch{
		j: j, guard: j.guard, lease: l,
		breaker: newBreaker(timing.TTL, j.cfg.Interval), silent: map[string]time.Time{},
	}
}

// look returns the roster with everybody's liveness, at most a second old, and from after the last
// end of a heartbeat.
func (w *watch) look(ctx context.Context) (map[string]Liveness, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refresh(ctx); err != nil {
		return nil, err
	}
	return maps.Clone(w.roster), nil
}

// refresh is look for who holds mu.
func (w *watch) refresh(ctx context.Context) error {
	begun := time.Now()
	due := !w.expires.IsZero() && !begun.Before(w.expires)
	if !w.looked.IsZero() && begun.Sub(w.looked) < lookFresh && !due {
		return nil
	}
	if w.quiet && !due && begun.Sub(w.full) < w.j.cfg.Registry.Timing().Interval/5 && w.unchanged(ctx) {
		w.breaker.lookedAt(begun, w.roster, nil, nil)
		w.looked = begun
		return nil
	}
	ids, err := w.readRoster(ctx)
	if err != nil {
		return err
	}
	missing := w.breaker.missing(ids)
	found, left, err := w.j.heartbeats(ctx, append(slices.Clone(ids), missing...))
	if err != nil {
		return err
	}
	byes, err := w.goodbyes(ctx, found)
	if err != nil {
		return err
	}
	roster, gone := found, make(map[string]Liveness, len(missing))
	for _, id := range missing {
		gone[id] = found[id]
		delete(roster, id)
		delete(left, id)
	}
	w.breaker.lookedAt(begun, roster, byes, gone)
	maps.DeleteFunc(w.silent, func(id string, _ time.Time) bool { return roster[id] != Dead })
	for id, liveness := range roster {
		if _, before := w.silent[id]; liveness == Dead && !before {
			w.silent[id] = begun
		}
	}
	late := w.j.pace.LateHeartbeats(left)
	w.roster, w.looked, w.full, w.expires = roster, begun, begun, time.Time{}
	w.quiet = !late && !slices.ContainsFunc(slices.Collect(maps.Values(roster)), func(l Liveness) bool { return l != Alive })
	if len(left) > 0 {
		w.expires = time.Now().Add(slices.Min(slices.Collect(maps.Values(left))) + time.Millisecond)
	}
	return nil
}

// unchanged asks, in two commands for however many replicas, whether the roster is as long as it
// was and every heartbeat on it still there. Anything else, an error too, is for a full look to
// find out about: no verdict rests on a count.
func (w *watch) unchanged(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	keys := make([]string, 0, len(w.roster))
	for id := range w.roster {
		keys = append(keys, w.j.layout.Heartbeat(id))
	}
	pipe := w.j.cfg.Client.Pipeline()
	listed := pipe.SCard(ctx, w.j.layout.Roster())
	var there []*redis.IntCmd
	for slice := range slices.Chunk(keys, existsSlice) {
		there = append(there, pipe.Exists(ctx, slice...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false
	}
	left := int64(len(keys))
	for _, n := range there {
		left -= n.Val()
	}
	return left == 0 && listed.Val() == int64(len(keys))
}

// nextExpiry is when the next heartbeat ends if it is not refreshed, as far as the last look saw;
// zero if none does.
func (w *watch) nextExpiry() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.expires
}

// readRoster reads the roster in pages: one round trip unless there are thousands. A key of another
// type is an empty roster: owners are then met by the full scan.
func (w *watch) readRoster(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var ids []string
	for cursor := uint64(0); ; {
		page, next, err := w.j.cfg.Client.SScan(ctx, w.j.layout.Roster(), cursor, "", defaultScanCount).Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE ") {
			if !w.mistyped {
				w.j.log.Warn("roster is of another type: taken for empty; look what it is, then DEL it", "key", w.j.layout.Roster())
			}
			w.mistyped = true
			return nil, nil
		}
		w.mistyped = false
		if err != nil {
			return nil, fmt.Errorf("janitor: read roster: %w", err)
		}
		ids = append(ids, page...)
		if cursor = next; cursor == 0 {
			return ids, nil
		}
	}
}

// goodbyes asks which of those that have just fallen silent said so before. Caller holds mu.
func (w *watch) goodbyes(ctx context.Context, found map[string]Liveness) (map[string]bool, error) {
	var fallen []string
	for id, liveness := range found {
		if liveness == Dead && (!w.breaker.primed || w.breaker.lives(id)) {
			fallen = append(fallen, id)
		}
	}
	byes := map[string]bool{}
	for slice := range slices.Chunk(fallen, existsSlice) {
		fields := make([]string, len(slice))
		for i, id := range slice {
			fields[i] = w.j.layout.Bye(id)
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		marks, err := w.j.cfg.Client.HMGet(ctx, w.j.layout.Witness(), fields...).Result()
		cancel()
		if err != nil {
			return nil, fmt.Errorf("janitor: read goodbyes: %w", err)
		}
		for i, mark := range marks {
			byes[slice[i]] = mark != nil
		}
	}
	return byes, nil
}

// judged feeds the breaker with what a sweep found out about owners. scanned: a full scan met them.
func (w *watch) judged(ctx context.Context, found map[string]Liveness, scanned bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if scanned {
		for id, liveness := range found {
			if liveness != Unreadable {
				w.breaker.met(now, id)
			}
		}
	}
	byes, err := w.goodbyes(ctx, found)
	if err != nil {
		return err
	}
	for id, liveness := range found {
		w.breaker.judged(now, id, liveness, byes[id])
	}
	return nil
}

// listed tells whether an owner stood on the roster at the last look.
func (w *watch) listed(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, there := w.roster[id]
	return there
}

// dead are those on the roster that were silent at the last look, and since which look.
func (w *watch) dead() map[string]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.silent)
}

// scanned notes that a full scan met every owner there is.
func (w *watch) scanned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaker.whole = true
}

// swept notes that an owner was taken off the roster by us.
func (w *watch) swept(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaker.swept(owner)
	delete(w.roster, owner)
	delete(w.silent, owner)
}

// believe returns a HeldError when more owners have fallen silent than can be believed, and the
// witness was made to start anew for it. It is asked before each batch that rests on an owner's
// silence.
func (w *watch) believe(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refresh(ctx); err != nil {
		return err
	}
	fallen, of, tripped := w.breaker.tripped(time.Now())
	if !tripped || time.Since(w.checked) < lookFresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held, err := w.guard.Hold(ctx, w.lease, 2*w.j.cfg.Registry.Timing().Grace())
	if err != nil {
		return err
	}
	if !held { // it was held lately: this time it is believed
		w.checked = time.Now()
		return nil
	}
	w.j.log.Warn("mass-failure breaker: too many owners fell silent at once", "fallen", fallen, "of", of)
	w.j.listener.poke()
	return &HeldError{heldMassFailure}
}
