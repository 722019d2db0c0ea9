package availability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// errEmptySource: a source without any state is more likely the wrong database.
var errEmptySource = errors.New(
	"availability: the source has no states at all, and Redis has: check DATABASE_URL; nothing is removed")

// driftNamed limits the mitras logged per kind. All are counted.
const driftNamed = 20

const scanOf = 1000

type caller func(ctx context.Context, f func(ctx context.Context) error) error

func directly(ctx context.Context, f func(ctx context.Context) error) error { return f(ctx) }

// reconciliation compares both ways. It reads Redis first and the source later, so a mitra that is
// only in Redis cannot be a change under way.
type reconciliation struct {
	*Mirror
	mode string                      // compare; heal: differences are work, not drift; newer: of a writer or the feed
	page func(context.Context) error // before each page; may be nil
	call caller

	inRedis map[string]string // id -> version, or ""
	states  int
	found   map[string]int
}

func (r *reconciliation) run(ctx context.Context) error {
	if err := r.readRedis(ctx); err != nil {
		return err
	}
	had := len(r.inRedis)
	differing, err := r.comparePages(ctx)
	if err != nil {
		return err
	}
	if r.states == 0 && had > 0 {
		return errEmptySource
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
	if err := r.heal(ctx, differing); err != nil {
		return err
	}
	return r.removeUnknowns(ctx)
}

func (r *reconciliation) readRedis(ctx context.Context) error {
	r.inRedis = map[string]string{}
	for _, key := range []string{r.keys.version(), r.keys.online(), r.keys.deactivated()} {
		step := 1
		if key == r.keys.version() {
			step = 2
		}
		for page, err := range r.pages(ctx, r.call, key, scanOf) {
			if err == nil && r.page != nil {
				err = r.page(ctx)
			}
			if err != nil {
				return fmt.Errorf("availability: read the mirror: %w", err)
			}
			for ; len(page) >= step; page = page[step:] {
				if key == r.keys.version() {
					r.inRedis[page[0]] = page[1]
				} else if _, has := r.inRedis[page[0]]; !has {
					r.inRedis[page[0]] = ""
				}
			}
		}
	}
	return nil
}

// comparePages returns states to look at again, and removes all states from inRedis.
func (r *reconciliation) comparePages(ctx context.Context) (again []State, err error) {
	for after := ""; ; {
		if r.page != nil {
			if err := r.page(ctx); err != nil {
				return nil, err
			}
		}
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
			delete(r.inRedis, s.ID)
			of[s.ID] = s
		}
		unequal, err := r.bring(ctx, r.mode, states)
		if err != nil {
			return nil, err
		}
		for _, u := range unequal {
			if r.mode == compare || u.kind == Ahead || u.kind == alive {
				again = append(again, of[u.id])
			} else {
				r.found[u.kind]++
			}
		}
	}
}

func (r *reconciliation) bring(
	ctx context.Context,
	mode string,
	states []State,
) (found []unequal, err error) {
	err = r.call(ctx, func(ctx context.Context) (err error) {
		found, err = r.apply(ctx, mode, states...)
		return err
	})
	return found, err
}

// heal corrects states that still differ as at the first look. Those that changed since are not
// drift: they are on their way.
func (r *reconciliation) heal(ctx context.Context, states []State) error {
	for part := range slices.Chunk(states, applyOf) {
		found, err := r.bring(ctx, heal, part)
		if err == nil {
			_, err = r.settle(ctx, found)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle deals with what a script found beside the states that it applied. It counts states new to
// Redis, if those were to be expected.
func (r *reconciliation) settle(ctx context.Context, found []unequal) (brought int, err error) {
	var ahead []unequal
	var living []string
	for _, u := range found {
		switch {
		case u.kind == Ahead, u.kind == Differs && r.mode == newer:
			ahead = append(ahead, u)
		case u.kind == alive:
			living = append(living, u.id)
		case u.kind == heard:
		case r.mode == newer:
			brought++
		default:
			r.drifted(u.kind, u.id)
		}
	}
	states, lost, err := r.overbid(ctx, ahead)
	for _, id := range lost {
		r.drifted(Ahead, id)
	}
	revived, reviveErr := r.revive(ctx, living)
	if err = errors.Join(err, reviveErr); err != nil {
		return brought, err
	}
	_, err = r.bring(ctx, newer, append(states, revived...))
	return brought, err
}

// removeUnknowns removes mitras that the source does not know. New ones that a page missed have a
// state by now.
func (r *reconciliation) removeUnknowns(ctx context.Context) error {
	for part := range slices.Chunk(slices.Sorted(maps.Keys(r.inRedis)), applyOf) {
		states, err := r.source.States(ctx, part)
		if err != nil {
			return fmt.Errorf("availability: read states: %w", err)
		}
		for _, s := range states {
			delete(r.inRedis, s.ID)
		}
		var args []any
		for _, id := range part {
			if version, still := r.inRedis[id]; still {
				args = append(args, id, version)
				r.drifted(Unknown, id)
			}
		}
		if len(args) == 0 {
			continue
		}
		var left []string
		err = r.call(ctx, func(ctx context.Context) (err error) {
			left, err = removeScript.Run(ctx, r.rdb, r.keys.all(), args...).StringSlice()
			return err
		})
		if err != nil {
			return fmt.Errorf("availability: remove unknowns: %w", err)
		}
		for ; len(left) >= 3; left = left[3:] {
			r.keptKey(left[0], left[1], left[2])
		}
	}
	return nil
}

// whole returns errUnseeded if somebody emptied the mirror, which is not drift.
func (r *reconciliation) whole(ctx context.Context) error {
	err := r.call(ctx, func(ctx context.Context) error { return r.rdb.Get(ctx, r.keys.seeded()).Err() })
	if errors.Is(err, redis.Nil) {
		return errUnseeded
	}
	if err != nil {
		return fmt.Errorf("availability: is the mirror whole: %w", err)
	}
	return nil
}

func (r *reconciliation) drifted(kind, id string) {
	r.found[kind]++
	if r.mode == heal {
		return
	}
	r.metrics.drift.WithLabelValues(kind).Inc()
	if r.found[kind] <= driftNamed {
		r.log.Warn("drift healed", "kind", kind, "mitra", id)
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
	r := &reconciliation{Mirror: m, mode: compare, found: map[string]int{}, call: call}
	if err := r.whole(ctx); err != nil {
		return nil, 0, err
	}
	m.nameUnseen(ctx)
	ids, err := m.repair(ctx, r.found)
	if err != nil {
		return nil, 0, err
	}
	for part := range slices.Chunk(ids, applyOf) {
		states, err := m.source.States(ctx, part)
		if err != nil {
			return r.found, 0, fmt.Errorf("availability: read states: %w", err)
		}
		if _, err := m.apply(ctx, newer, states...); err != nil {
			return r.found, 0, err
		}
	}
	err = r.run(ctx)
	return r.found, r.states, err
}

func (m *Mirror) repair(ctx context.Context, found map[string]int) (ids []string, err error) {
	repaired, err := m.source.Repair(ctx)
	if err != nil {
		err = fmt.Errorf("availability: repair: %w", err)
	}
	for _, state := range repaired {
		found[Base]++
		m.metrics.drift.WithLabelValues(Base).Inc()
		if found[Base] <= driftNamed {
			m.log.Warn("state repaired: it was not what the base tables say; are triggers off?",
				"mitra", state.ID, "was", state.Was, "became", state.Became, "unseen", m.Health().Unseen)
		}
		ids = append(ids, state.ID)
	}
	return ids, err
}
