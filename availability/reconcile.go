package availability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// errEmptySource: a source without any state is more likely the wrong database.
var errEmptySource = errors.New(
	"availability: the source has no states at all, and Redis has: check DATABASE_URL; nothing is removed")

// driftNamed limits the mitras logged per kind. All are counted.
const driftNamed = 20

// A caller makes a call to Redis, which may have to wait for its turn.
type caller func(ctx context.Context, f func(ctx context.Context) error) error

func directly(ctx context.Context, f func(ctx context.Context) error) error { return f(ctx) }

// reconciliation compares both ways, page by page.
type reconciliation struct {
	*Mirror
	mode string // compare; heal: differences are work, not drift; newer: of a writer or the feed
	call caller

	states int
	found  map[string]int
}

func (m *Mirror) reconciliation(mode string, call caller) *reconciliation {
	return &reconciliation{Mirror: m, mode: mode, call: call, found: map[string]int{}}
}

func (r *reconciliation) run(ctx context.Context) error {
	differing, err := r.comparePages(ctx)
	if err != nil {
		return err
	}
	if r.mode == compare && len(differing) > 0 {
		// A writer or the feed may be about to deliver them. Only what neither delivers is drift.
		if !wait.For(ctx, 2*r.c.Tick) {
			return context.Cause(ctx)
		}
		if err := r.whole(ctx); err != nil {
			return err
		}
	}
	// Those that changed since are not drift: they are on their way.
	for part := range slices.Chunk(differing, applyOf) {
		if _, err := r.deliver(ctx, heal, part); err != nil {
			return err
		}
	}
	return r.removeUnknowns(ctx)
}

// comparePages returns states to look at again.
func (r *reconciliation) comparePages(ctx context.Context) (again []State, err error) {
	for after := ""; ; {
		states, err := r.source.Page(ctx, after, applyOf)
		if err != nil {
			return nil, fmt.Errorf("availability: read states: %w", err)
		}
		if len(states) == 0 {
			return again, nil
		}
		after = states[len(states)-1].ID
		r.states += len(states)
		of := map[string]State{}
		for _, s := range states {
			of[s.ID] = s
		}
		unequal, err := r.bring(ctx, r.mode, states)
		if err != nil {
			return nil, err
		}
		for _, u := range unequal {
			if r.mode == compare || u.kind == Ahead || u.kind == alive {
				again = append(again, of[u.ID])
			} else {
				r.found[u.kind]++
			}
		}
	}
}

func (r *reconciliation) bring(ctx context.Context, mode string, states []State) (found []unequal, err error) {
	err = r.call(ctx, func(ctx context.Context) (err error) {
		found, err = r.apply(ctx, mode, states...)
		return err
	})
	return found, err
}

// deliver applies committed states, outbids versions of lost commits, and revives who is alive. It
// counts states new to Redis.
func (r *reconciliation) deliver(ctx context.Context, mode string, states []State) (brought int, err error) {
	found, err := r.bring(ctx, mode, states)
	if err != nil {
		return 0, err
	}
	return r.settle(ctx, found)
}

// settle deals with what a script found beside the states that it applied. It counts states new to
// Redis, if those were to be expected.
func (r *reconciliation) settle(ctx context.Context, found []unequal) (brought int, err error) {
	ahead := map[string]unequal{}
	var living []string
	for _, u := range found {
		switch {
		case u.kind == Ahead, u.kind == Differs && r.mode == newer:
			ahead[u.ID] = u
		case u.kind == alive:
			living = append(living, u.ID)
		case u.kind == heard:
		case r.mode == newer:
			brought++
		default:
			r.drifted(u.kind, u.ID)
		}
	}
	states, err := r.overbid(ctx, ahead)
	revived, reviveErr := r.revive(ctx, living)
	if err = errors.Join(err, reviveErr); err != nil {
		return brought, err
	}
	_, err = r.bring(ctx, newer, append(states, revived...))
	return brought, err
}

// removeUnknowns removes what the source does not know, and members that are too long for the
// mirror to have written them. However many there are, it has one page of them in memory.
func (r *reconciliation) removeUnknowns(ctx context.Context) error {
	for _, key := range []string{r.keys.version(), r.keys.online(), r.keys.deactivated()} {
		read := func(ctx context.Context, cursor string) ([]string, error) {
			return scanScript.Run(ctx, r.rdb, []string{key, r.keys.version()}, cursor, applyOf).StringSlice()
		}
		for page, err := range r.scan(ctx, r.call, 1, read) {
			if err != nil {
				return fmt.Errorf("availability: read the mirror: %w", err)
			}
			if removed, _ := strconv.Atoi(page[0]); removed > 0 {
				r.tooLong(key, removed)
			}
			versions := map[string]string{}
			for page = page[1:]; len(page) >= 2; page = page[2:] {
				versions[page[0]] = page[1]
			}
			if err := r.removeUnknown(ctx, versions); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeUnknown takes versions, or "", by id. They were read before the source is asked, so a mitra
// that is only in Redis cannot be a change under way.
func (r *reconciliation) removeUnknown(ctx context.Context, versions map[string]string) error {
	if len(versions) == 0 {
		return nil
	}
	if r.states == 0 {
		return errEmptySource
	}
	states, err := r.source.States(ctx, slices.Collect(maps.Keys(versions)))
	if err != nil {
		return fmt.Errorf("availability: read states: %w", err)
	}
	for _, s := range states {
		delete(versions, s.ID)
	}
	if len(versions) == 0 {
		return nil
	}
	var args []any
	for id, version := range versions {
		args = append(args, id, version)
		r.drifted(Unknown, id)
	}
	err = r.call(ctx, func(ctx context.Context) error {
		left, err := removeScript.Run(ctx, r.rdb, r.keys.all(), args...).StringSlice()
		for ; len(left) >= 3; left = left[3:] {
			r.badKey(left[0], kept, 1, left[2], left[1])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("availability: remove unknowns: %w", err)
	}
	return nil
}

// whole returns errUnseeded if somebody emptied the mirror, which is not drift.
func (r *reconciliation) whole(ctx context.Context) error {
	return r.call(ctx, func(ctx context.Context) error {
		n, err := r.rdb.Exists(ctx, r.keys.seeded()).Result()
		if err == nil && n == 0 {
			err = errUnseeded
		}
		return err
	})
}

func (r *reconciliation) drifted(kind, id string, more ...any) {
	r.found[kind]++
	if r.mode == heal {
		return
	}
	r.metrics.drift.WithLabelValues(kind).Inc()
	if r.found[kind] <= driftNamed {
		r.log.Warn("drift healed", append([]any{"kind", kind, "mitra", id}, more...)...)
	}
}

// nameUnseen logs how the base tables may change without their states.
func (m *Mirror) nameUnseen(ctx context.Context) {
	ways, err := m.source.Unseen(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.log.Warn("nobody knows whether triggers see every change", "error", err)
		return
	}
	if before := m.Health().Unseen; len(ways) > 0 && !slices.Equal(ways, before) {
		m.log.Warn("the base tables may change without their states: a comparison puts those right",
			"unseen", ways)
	}
	m.note(func(h *Health) { h.Unseen = ways })
}

// reconcile leaves a mirror that is not whole to the seeding: errUnseeded.
func (m *Mirror) reconcile(ctx context.Context, call caller) (map[string]int, int, error) {
	r := m.reconciliation(compare, call)
	if err := r.whole(ctx); err != nil {
		return nil, 0, err
	}
	m.nameUnseen(ctx)
	err := r.repair(ctx)
	if err == nil {
		err = r.run(ctx)
	}
	return r.found, r.states, err
}

// repair leaves it to the feed to deliver what it repaired.
func (r *reconciliation) repair(ctx context.Context) error {
	repaired, err := r.source.Repair(ctx)
	if err != nil {
		return fmt.Errorf("availability: repair: %w", err)
	}
	for _, state := range repaired {
		r.drifted(Base, state.ID, "was", state.Was, "became", state.Became, "unseen", r.Health().Unseen)
	}
	return nil
}

// Outcomes for a key with something that the mirror did not store.
const (
	rebuilt = "rebuilt" // by the source, or by the replica that computes, seeds or sweeps
	kept    = "kept"    // it may be somebody else's
)

// heartbeatAhead is how far ahead a heartbeat's clock may have been, as in heard.lua.
const heartbeatAhead = 24 * time.Hour

// computingAtMost exceeds any computation's mark.
const computingAtMost = time.Minute

const (
	capacityKeys  = "mitra:capacity"
	heartbeatKeys = "mitra:heartbeat"
)

var badKinds = map[string]string{"bad_capacity": capacityKeys, "bad_heartbeat": heartbeatKeys}

// sharedKeys are those of fit.lua, without prefix.
var sharedKeys = []string{
	"mitras:online", "mitras:deactivated", "mitras:version", "mitras:seeded", "mitras:fed",
	"availability:snapshot", "availability:snapshot:computing", "availability:offline",
}

// badKey counts keys that held something else, and logs what that was and where.
func (m *Mirror) badKey(kind, outcome string, count int, was any, where ...string) {
	m.metrics.badKeys.WithLabelValues(kind, outcome).Add(float64(count))
	m.log.Warn("keys of the mirror held something else: rebuilt, or kept as they may be somebody's",
		"key", kind, "outcome", outcome, "count", count, "was", was, "where", where[:min(len(where), driftNamed)])
}

// tooLong counts members that a script removed, as the mirror cannot have written them.
func (m *Mirror) tooLong(key string, removed int) {
	m.badKey(strings.TrimPrefix(key, m.keys.Prefix), rebuilt, removed, "members, as they are too long", key)
}

var errKept = errors.New("availability: a key is of another type and may be somebody's: " +
	"move it, or choose another prefix")

// fit checks the shared keys, because one of the wrong type would fail every script. The mirror's
// are made again. The error lists the others, about which somebody must decide.
func (f *feed) fit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	keys := f.keys.all(f.keys.fed(), f.keys.snapshot(), f.keys.computing(), f.keys.noted())
	out, err := fitScript.Run(ctx, f.rdb, keys, bit(f.sawWhole), computingAtMost.Milliseconds()).StringSlice()
	if err != nil {
		return fmt.Errorf("availability: look at the types of keys: %w", err)
	}
	var left []string
	for ; len(out) >= 3; out = out[3:] {
		key, was, outcome := out[0], out[1], out[2]
		is := key + " (" + was + ")"
		if outcome == kept {
			left = append(left, is)
		}
		if outcome == rebuilt || !slices.Contains(f.left, is) {
			f.badKey(strings.TrimPrefix(key, f.keys.Prefix), outcome, 1, was, key)
		}
	}
	f.left = left
	if len(left) > 0 {
		f.note(func(h *Health) { h.Whole, h.LookedAt = false, time.Now() })
		return fmt.Errorf("%w: %s", errKept, strings.Join(left, ", "))
	}
	return nil
}
